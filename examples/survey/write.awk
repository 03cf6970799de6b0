# write.awk: the report. Everything in it is escaped already; what is left of
# control bytes came from elsewhere and is dropped.
BEGIN { FS = "\t" }
{ gsub(/[\001-\010\013-\037\177]/, "?") }
$1 == "fact" { fact[$2] = (fact[$2] == "") ? $3 : fact[$2] ", " $3; next }
$1 == "unseen" { if (!(($2) in known)) { known[$2] = 1; unseen[++blind] = $2 }; next }
$1 == "more" { more = more (more == "" ? "" : ", ") $3 " of " $2; next }
$1 == "item" { items++; kind[items] = $3; evidence[items] = $4; title[items] = $5; reason[items] = $6 }
END {
	base = fact["directory"]
	sub(/^.*\//, "", base)
	if (base == "") base = "/"
	print "Survey of " base ": " (items ? "what to fix, the first thing first" : "nothing found that needs fixing")
	print ""
	print "Question   " (fact["question"] == "" ? "(none)" : fact["question"])
	print "Ranking    " fact["moved"]
	line = fact["files"] + 0 == 0 ? "no file at all" : fact["files"] " file" (fact["files"] == 1 ? "" : "s")
	if (fact["source-files"] + 0) line = line ", " fact["source-files"] " of source (" fact["languages"] ")"
	if (fact["test-files"] + 0) line = line ", " fact["test-files"] " with tests"
	if (fact["dependency-files"] + 0) line = line ", " fact["dependency-files"] " with dependencies"
	print "Directory  " fact["directory"]
	print "Content    " line
	if (fact["commit"] != "") {
		line = "commit " fact["commit"] (fact["branch"] == "" ? ", no branch" : " on " fact["branch"])
		if (fact["commits"] != "") line = line "; " fact["commits"] " commit" (fact["commits"] == 1 ? "" : "s")
		if (fact["authors"] != "") line = line " by " fact["authors"] " author" (fact["authors"] == 1 ? "" : "s")
		if (fact["span"] != "") line = line ", " fact["span"]
		print "History    " line
	}
	print ""
	for (i = 1; i <= items; i++) {
		printf "%2d. %s: %s  [%s]\n", i, evidence[i], title[i], kind[i]
		print "    " reason[i]
	}
	if (items) print ""
	if (more != "") print "Further findings that did not fit: " more
	shown_lines = blind > 6 ? 5 : blind
	for (i = 1; i <= shown_lines; i++) print "Could not see " unseen[i]
	if (blind > shown_lines) print "Could not see " blind - shown_lines " further things"
	if (!blind) print "Nothing that the survey looks for was out of its sight."
}
