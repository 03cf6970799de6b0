# What the agent `later` looks for: the words and their scores.
BEGIN {
	score["HACK"] = 4.5
	score["TODO"] = 4
	hint = "TODO|HACK"
	conflicts = 0
}
