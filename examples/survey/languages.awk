# languages.awk: names, one a line. By files, because lines need every file read.
{
	l = language($0)
	if (l == "") next
	n[l]++
	total++
}
END {
	for (rank = 1; rank <= 5; rank++) {
		best = ""
		for (l in n) if (n[l] && (best == "" || n[l] > n[best] || n[l] == n[best] && l < best)) best = l
		if (best == "") break
		out = out (rank > 1 ? ", " : "") best " " n[best]
		n[best] = 0
	}
	print "fact\tsource-files\t" total + 0
	if (out != "") print "fact\tlanguages\t" out
}
