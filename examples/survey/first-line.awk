# The first line that says something, escaped.
/[^ \t\r]/ {
	print quote($0, 300)
	exit
}
