# sh marker-kind.sh urgent|later: open markers with their lines.
. "${0%/*}/lib.sh"
kind=$1
read_prompt
say "looking for $kind markers"
each "$inventory/text" awk -f "$here/escape.awk" -f "$here/marker-$kind.awk" -f "$here/markers.awk" >"$scratch/found"
fact "markers-$kind" "$(wc -l <"$scratch/found" | tr -d ' \t')"
sort -t "$TAB" -k 3,3nr "$scratch/found" | head -n 300 | awk_ verify
