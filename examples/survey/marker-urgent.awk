# What the agent `urgent` looks for: the words and their scores.
BEGIN {
	score["FIXME"] = 7
	score["BUG"] = 6.5
	score["XXX"] = 6
	hint = "FIXME|XXX|BUG"
	conflicts = 1
}
