# Text files of 1,000 lines and more, files of 1 MiB and more.
. "${0%/*}/lib.sh"
. "$here/inventory.sh"
read_prompt
each "$inventory/text" awk -f "$here/escape.awk" -f "$here/lines.awk" >"$scratch/lines"
awk '$1 == "unreadable" { n++ } END { if (n) print "unseen\t" n " file(s) that may not be read" }' "$scratch/lines"

# Largest class first, so that the bound below drops the smallest.
{
	regular "$inventory/files" -size +104857599c
	regular "$inventory/files" -size +10485759c -size -104857600c
	regular "$inventory/files" -size +1048575c -size -10485760c
} >"$scratch/big"
say "$(count_of "$scratch/big") files of 1 MiB and more"
{
	awk_ large-files "$scratch/lines" | sort -t "$TAB" -k 3,3nr | head -n 200 | awk_ verify
	each "$scratch/big" sh -c '
		for f; do
			n=$(wc -c <"$f") && printf "%s\\t%s\\000" "$((n))" "$f"
		done' sh 2>/dev/null | tr '\n\000' '\001\n' | head -n 300 | awk_ big-files
} | sort -t "$TAB" -k 3,3nr | head -n 200
