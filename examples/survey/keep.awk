# Keeps the lines of lib.sh's format from the answers of a team; a member that
# failed becomes a line "unseen", so that its absence is not taken for "nothing".
/^### / {
	failed = 0
	if ($NF == "(failed)") {
		failed = 1
		name = $2
	}
	next
}
failed && /[^ \t]/ {
	print "unseen\twhat " esc(name) " would have found: " quote($0, 200)
	failed = 0
	next
}
/^(fact|unseen|finding)\t/ { print }
