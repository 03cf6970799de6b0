# Which files change most often.
. "${0%/*}/lib.sh"
read_prompt
# Why there is no history is in the inventory's facts.
[ "$git_state" = works ] || exit 0

most=5000
total=$(git_ rev-list --count HEAD 2>/dev/null)
: >"$scratch/boundary"
if [ "$(git_ rev-parse --is-shallow-repository 2>/dev/null)" = true ]; then
	unseen "older changes: this is a shallow clone, $total commit(s) deep"
	# The oldest commits of a shallow clone seem to add every file: not counted.
	cat "$(git_ rev-parse --git-path shallow)" >"$scratch/boundary" 2>/dev/null
fi
say "reading $total commits"
[ "${total:-0}" -le $most ] || unseen "changes before the last $most of $total commits"
if [ -n "$(git_ rev-parse --show-prefix)" ]; then
	set -- --relative -- .
else
	set --
fi
git_ log -z -n $most --name-only --no-renames --no-ext-diff --date=short \
	--format='%x01%H%x03%h%x03%ad%x03%aN' "$@" 2>"$scratch/error" >"$scratch/log"
if [ $? -ne 0 ]; then
	unseen "part of the history: $(awk_ first-line "$scratch/error")"
fi
fact commits "${total:-0}"
tr '\n\000' '\002\n' <"$scratch/log" |
	awk_ history "$scratch/boundary" "$inventory/names" - | sort -t "$TAB" -k 3,3nr | head -n 200
