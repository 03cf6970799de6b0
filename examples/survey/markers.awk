# markers.awk FILE…: lines with an open marker. A word counts as a marker inside a
# comment, or with ":" or "(name)" after it, or at the start of a line of prose; a
# word in quotes or in a list of such words is talk about markers, not one.
BEGIN {
	for (i = 1; i < ARGC; i++) scan(ARGV[i])
	exit
}

function scan(file,    line, n, prose, start, middle, conflict, name) {
	n = 0
	prose = extension(file) == "" || extension(file) ~ /^(txt|md|rst|adoc|org)$/
	start = middle = conflict = 0
	while ((getline line < file) > 0) {
		n++
		if (n < 50 && binary(line)) break
		if (conflicts && line ~ /^(<<<<<<< |=======$|>>>>>>> )/) {
			if (line ~ /^</) start = n
			else if (line ~ /^=/) middle = n
			else if (line ~ /^>/ && start && middle > start && !conflict) {
				conflict = 1 # One per file is enough to open it.
				name = shown(file)
				finding("markers", testlike(file) || prose ? 4 : 10, name, name ":" start, "an unresolved merge conflict", \
					"Conflict markers from line " start " to line " n " are part of the file.", raw(file))
				start = 0
			}
		}
		if (line !~ hint || binary(line)) continue
		look(file, n, line, prose)
	}
	close(file)
}

function look(file, n, line, prose,    rest, offset, word, before, after, head, tail, called, name, value) {
	rest = line
	offset = 0
	while (match(rest, hint)) {
		word = substr(rest, RSTART, RLENGTH)
		head = substr(line, 1, offset + RSTART - 1)
		tail = substr(rest, RSTART + RLENGTH)
		offset += RSTART + RLENGTH - 1
		rest = tail
		before = substr(head, length(head))
		after = substr(tail, 1, 1)
		if (before ~ /[A-Za-z0-9_"'`|.$-]/ || after ~ /[A-Za-z0-9_"'`|,\/.)=-]/) continue
		# Right after a slash only where that slash opens or continues a comment.
		if (before == "/" && head !~ /\/\/$|\*\/$/) continue
		# Between or beside other such words it is a list of them.
		if (head ~ /(TODO|FIXME|XXX|HACK|BUG)[ ,\/|]+(and |or )?$/) continue
		if (tail ~ /^[ ,\/|]+(and |or )?(TODO|FIXME|XXX|HACK|BUG)([^A-Za-z0-9_]|$)/) continue
		# "See the FIXME there" is about another one.
		if (head ~ /(^|[^A-Za-z])([Tt]he|[Tt]hat|[Tt]hese|[Tt]hose|[Ss]ee) $/) continue
		called = after == ":" || tail ~ /^\([A-Za-z0-9_@#.:\/ -]+\)/
		if (prose) {
			if (head !~ /^[ \t]*([-*+>#]+|<!--|\[ \]|[0-9]+[.)])?[ \t]*(\[ \][ \t]*)?(\*\*)?$/ && !(called && word != "BUG")) continue
		} else if (!commented(head)) {
			if (!called || head ~ /["'`\/]/ || word == "BUG") continue
		}
		name = shown(file)
		value = score[word]
		if (testlike(file)) value *= 0.8
		sub(/^[ \t:]+/, "", tail)
		sub(/[ \t]*(\*\/|-->)[ \t\r]*$/, "", tail)
		finding("markers", value, name, name ":" n, tail !~ /[^ \t\r]/ ? word : word (tail ~ /^\(/ ? "" : after == ":" ? ": " : " ") quote(tail, 90), \
			word == "XXX" ? "Whoever wrote this line had doubts about it." : \
			word == "FIXME" || word == "BUG" ? "Whoever wrote this line knew it to be wrong." : \
			"Work that was put off here and is remembered by nothing else.", raw(file))
		return
	}
}

# Whether a comment has begun by the end of `head` and no string has.
function commented(head,    quotes) {
	quotes = gsub(/"/, "\"", head)
	if (quotes % 2) return 0
	if (head ~ /^[ \t]*(\*|;|%|'|--|rem |REM |dnl |")/) return 1
	return head ~ /\/\/|\/\*|<!--|(^|[ \t])#|[ \t;]--[ \t]|"""|'''|\{-|\(\*/
}
