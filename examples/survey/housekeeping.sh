# README, licence, continuous integration; keys and secrets that lie about.
. "${0%/*}/lib.sh"
. "$here/inventory.sh"
read_prompt
say 'housekeeping'
part=$(sed -n "s/^fact${TAB}part$TAB//p" "$inventory/facts")
awk -f "$here/escape.awk" -f "$here/housekeeping.awk" "$inventory/names" "$part"
each "$inventory/text" awk -f "$here/escape.awk" -f "$here/secrets.awk" | sort -t "$TAB" -k 3,3nr | head -n 50
