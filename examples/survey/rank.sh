# Second step: the findings in the order the question asks for.
. "${0%/*}/lib.sh"
say 'ranking'
cat >"$scratch/findings"
awk_ rank "$scratch/findings"
