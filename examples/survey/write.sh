# Last step: the report, at most 60 lines.
. "${0%/*}/lib.sh"
say 'writing'
cat >"$scratch/ranked"
sort -t "$TAB" -k 1,1 -k 2,2n -k 2,2 "$scratch/ranked" | awk_ write
