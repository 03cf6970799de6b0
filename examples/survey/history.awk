# history.awk BOUNDARY NAMES LOG: counts the commits that changed each file that
# is still there. In LOG \001 starts a commit, \002 stands for a newline.

FILENAME != last_file { part++; last_file = FILENAME }

FILENAME == ARGV[1] { boundary[$1] = 1; next }
FILENAME == ARGV[2] { gsub(/\001/, "\n"); sub(/^\.\//, ""); present[$0] = 1; next }

/^\001[0-9a-f]*\003/ {
	split(substr($0, 2), field, "\003")
	counted = !(field[1] in boundary)
	if (counted) commits++
	author = field[4]
	if (!(author in authors)) { authors[author] = 1; author_count++ }
	if (newest == "" || field[3] > newest) newest = field[3]
	if (oldest == "" || field[3] < oldest) oldest = field[3]
	first = 1
	next
}
{
	# The newline between a commit and its first name.
	if (first) sub(/^\002/, "")
	first = 0
	gsub(/\002/, "\n")
	if (!counted || $0 == "" || !($0 in present)) next
	changes[$0]++
	if (!(($0) in last)) { last[$0] = field[2]; day[$0] = field[3] }
	if (!(($0, author) in by)) { by[$0, author] = 1; people[$0]++ }
}
END {
	if (commits || author_count) {
		print "fact\tauthors\t" author_count
		print "fact\tspan\t" oldest " to " newest
	}
	for (f in changes) {
		n = changes[f]
		if (n < 10) continue
		score = 4 + (n > 50 ? 5 : n / 10)
		# Text and locks change with everything else.
		if (language(f) == "") score *= 0.5
		name = shown(f)
		reason = sprintf("Changed in %.0f %% of the commits, by %d %s, last on %s: what changes this often is worth making easy to change.", \
			100 * n / commits, people[f], people[f] == 1 ? "author" : "authors", day[f])
		finding("history", score, name, name " (last commit " last[f] ")", \
			n " of " commits " commits changed it", reason)
	}
}
