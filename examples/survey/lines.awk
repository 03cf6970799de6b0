# lines.awk FILE…: lines and name of each text file that people wrote, a newline in a name as \001.
# Files are read with getline because an operand that cannot be opened would end
# the program and lose the rest of the batch.
BEGIN {
	for (i = 1; i < ARGC; i++) {
		file = ARGV[i]
		n = 0
		text = 1
		made = 0
		while ((state = (getline line < file)) > 0) {
			n++
			if (n < 10 && generated(line)) made = 1
			if (n < 50 && binary(line)) {
				text = 0
				break
			}
		}
		close(file)
		gsub(/\n/, "\001", file)
		if (state < 0) print "unreadable\t" file
		else if (text && !made) print n "\t" file
	}
	exit
}
