# The agent a run starts with: inventory, scan, report.
. "${0%/*}/lib.sh"
. "$here/inventory.sh"

cat >"$scratch/question"
inventory=$scratch
take_inventory

{
	cat "$scratch/question"
	printf '\ninventory\t%s\n' "$inventory"
} >"$scratch/ask"

say 'scanning'
{
	quoted=$(awk_ first-line "$scratch/question")
	fact question "$quoted"
	# The words are taken from the whole question, not from its first line.
	# A sentence's end stays as a word, so that "not" does not reach beyond it.
	fact words "$(sed 's/[.;!?]/ . /g' "$scratch/question" | tr -cs 'A-Za-z.' ' ' | tr 'A-Z' 'a-z' | awk '{ print substr($0, 1, 4000); exit }')"
	cat "$scratch/facts"
	if "$offspring" task scan - <"$scratch/ask" 2>"$scratch/error"; then
		:
	else
		unseen "anything in the files: $(awk_ first-line "$scratch/error")"
	fi
} >"$scratch/findings"

say 'writing the report'
"$offspring" task report - <"$scratch/findings"
