# verify.awk: findings with one field more, the file's own name (\001 for a
# newline). Drops those in files that hold NUL and passes the rest without it.
# Only an awk that cannot see NUL itself asks, a process per file, so this comes
# after the list has been cut.
BEGIN { FS = "\t" }
{
	file = $0
	for (k = 1; k <= 7; k++) file = substr(file, index(file, "\t") + 1)
	line = substr($0, 1, length($0) - length(file) - 1)
	gsub(/\001/, "\n", file)
	if (!NUL_WORKS) {
		if (!(file in nul)) nul[file] = hides_nul(file)
		if (nul[file]) next
	}
	print line
}
