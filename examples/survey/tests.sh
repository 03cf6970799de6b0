# Source that no test mentions.
. "${0%/*}/lib.sh"
read_prompt
say 'looking for tests'
{
	names_of "$inventory/files" | awk_ test-names
	each "$inventory/text" awk -f "$here/escape.awk" -f "$here/test-words.awk"
} >"$scratch/seen"
sort -u "$scratch/seen" | awk_ tests | sort -t "$TAB" -k 3,3nr | head -n 100
