# First step of the report: what the scan said, each thing once.
. "${0%/*}/lib.sh"
say 'collecting'
cat >"$scratch/scan"
awk_ keep "$scratch/scan" | awk '!seen[$0]++'
