# large-files.awk LINES: the very long ones.
{
	n = $1 + 0
	if ($1 == "unreadable" || n < 1000) next
	file = substr($0, index($0, "\t") + 1)
	gsub(/\001/, "\n", file)
	name = shown(file)
	score = 3.5 + (n > 6000 ? 4 : n / 1500)
	if (language(file) == "") {
		score *= 0.5
		reason = "Few people read a text of this length to its end."
	} else if (testlike(file)) {
		score *= 0.7
		reason = "Tests of this length are seldom read when one of them fails."
	} else reason = "A source file of this length is hard to hold in one's head; it usually has several subjects."
	finding("size", score, name, name ": " n " lines", "a very long file", reason, raw(file))
}
