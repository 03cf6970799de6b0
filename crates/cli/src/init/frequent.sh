# An agent that the team asks, and that asks another one: two levels below the root.
tr -s '[:space:]' '\n' |
	offspring task ask_order - |
	uniq -c |
	sort -k 1,1nr -k 2 |
	head -n 3 |
	awk '{ print $2 ": " $1 }'
