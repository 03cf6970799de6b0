# tests.awk: the lines of test-names.awk and test-words.awk, sorted.
BEGIN { FS = "\t" }
$1 == "any" { any = 1 }
$1 == "word" { word[tolower($2)] = 1; next }
$1 == "test" || $1 == "tested" { any = 1; tests++; if ($1 == "tested") sources++; next }
$1 == "source" {
	sources++
	if ($2 >= 200) long[substr($0, length($1) + length($2) + 3)] = $2
}
END {
	print "fact\ttest-files\t" tests + 0
	if (sources && !any) {
		score = 6 + (sources > 60 ? 2 : sources / 30)
		finding("tests", score, "-", "0 test files, " sources " source file" (sources == 1 ? "" : "s"), "no test at all", \
			"Nothing tells whether a change broke something; start where changes are most frequent.")
	}
	if (!any) exit
	for (file in long) {
		if (language(file) ~ /^(Shell|SQL|awk|Lisp|Objective-C)$/ || file ~ /\.h$|(^|\/)(examples?|benches|migrations|docs?)\//) continue
		gsub(/\001/, "\n", file)
		stem = file
		sub(/\.[^.\/]*$/, "", stem)
		folder = stem
		sub(/^.*\//, "", stem)
		# These names say nothing: what the file is about is its folder's name.
		if (stem ~ /^(mod|lib|main|index|__init__|__main__|init)$/) {
			if (!sub(/\/[^\/]*$/, "", folder) || folder !~ /\//) continue
			sub(/\/src$/, "", folder)
			stem = folder
			sub(/^.*\//, "", stem)
		}
		if (stem ~ /^(build|setup|conftest)$/) continue
		# A stem in several words is looked for in each of the usual spellings.
		plain = tolower(stem)
		joined = plain
		gsub(/[^a-z0-9]+/, "_", plain)
		gsub(/[^a-z0-9]+/, "", joined)
		if (length(joined) < 4 || plain in word || joined in word) continue
		name = shown(file)
		finding("tests", 2.5 + (long[file] > 1500 ? 2.5 : long[file] / 600), name, name ": " long[file] " lines", \
			"no test mentions \"" esc(stem) "\"", "A test of it may go by another name; if there is none, its " long[file] " lines are checked by nobody.")
	}
}
