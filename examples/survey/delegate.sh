# sh delegate.sh TEAM: an agent whose whole work is to ask a team of its own.
# Its answer is what the members found; a member that failed is said to be unseen.
. "${0%/*}/lib.sh"
team=$1
read_prompt
say "asking $team"
{
	sed "/^inventory$TAB/d" "$scratch/prompt"
	printf 'inventory\t%s\n' "$inventory"
} >"$scratch/ask"
if ! "$offspring" task "$team" - <"$scratch/ask" >"$scratch/answer" 2>"$scratch/error"; then
	unseen "what $team would have found: $(awk_ first-line "$scratch/error")"
fi
awk_ keep "$scratch/answer"
