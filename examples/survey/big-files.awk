# big-files.awk: bytes, tab, name; \001 for a newline in the name.
{
	bytes = $1 + 0
	if (bytes < 1048576) next
	file = substr($0, index($0, "\t") + 1)
	gsub(/\001/, "\n", file)
	name = shown(file)
	score = 3
	for (b = bytes; b >= 4194304; b /= 4) score += 0.8
	if (score > 7) score = 7
	finding("size", score, name, name sprintf(": %d bytes", bytes), sprintf("a file of %.1f MiB", bytes / 1048576), \
		"Every clone carries it; a release asset or a download with a checksum may serve better.")
}
