# The entry of the pool: the prompt comes on stdin, and what is printed is the answer.
text=$(cat)

# `offspring task NODE PROMPT` makes a child of this session, waits for it and prints its answer. Any process of this
# run can do that. When the child fails it says why on stderr and ends with 1, and this script decides what then.
report=$(offspring task both "$text") || exit

printf 'Of "%s":\n%s\n' "$text" "$report"
