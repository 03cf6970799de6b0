# Files per language, by extension.
. "${0%/*}/lib.sh"
read_prompt
say 'counting languages'
names_of "$inventory/text" | awk_ languages
