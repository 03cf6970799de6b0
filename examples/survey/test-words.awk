# test-words.awk FILE…: per source file its lines and whether it holds tests;
# of every test file the words in it and in its name.
BEGIN {
	for (i = 1; i < ARGC; i++) scan(ARGV[i])
	exit
}

function scan(file,    line, n, test, inline, name) {
	if (language(file) == "") return
	test = testlike(file) || file ~ /(Test|Tests|Spec)\.[a-z]+$/
	n = 0
	if (test) words(file)
	while ((getline line < file) > 0) {
		n++
		if (n < 50 && binary(line)) { n = 0; break }
		if (n < 10 && !test && generated(line)) { n = 0; break }
		if (!inline && line ~ /#\[(cfg\(test\)|[a-z:_]*test[](])|^[ \t]*def test_|^[ \t]*@Test|(^|[ \t])mod tests;|^[ \t]*(describe|test)\(["'`]/)
			inline = 1
		if (test || inline) words(line)
	}
	close(file)
	if (!n) return
	name = file
	gsub(/\n/, "\001", name)
	print (test ? "test" : inline ? "tested" : "source") "\t" n "\t" name
}

function words(s,    part, count, k) {
	count = split(s, part, /[^A-Za-z0-9_]+/)
	for (k = 1; k <= count; k++) if (length(part[k]) > 3 && !(part[k] in known)) {
		known[part[k]] = 1
		print "word\t" part[k]
		# parse_line_test and TestParseLine mention parse_line and ParseLine.
		if (part[k] ~ /[Tt]est/) {
			line_word = part[k]
			gsub(/_?[Tt]ests?_?/, "", line_word)
			if (length(line_word) > 3 && !(line_word in known)) { known[line_word] = 1; print "word\t" line_word }
		}
	}
}
