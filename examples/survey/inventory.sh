# take_inventory: which files there are. Writes into $scratch
#   files      every regular file, "./" first so that no name looks like an option
#   text       those worth reading: not vendored, generated or larger than 4 MiB
#   git-state  works | no-commit | none
#   facts      fact and unseen lines for the report
# Sourced by lib.sh.

# The names that hold other people's or generated files.
vendored='-path */node_modules/* -o -path */vendor/* -o -path */third_party/*
	-o -path */.venv/* -o -path */venv/* -o -path */__pycache__/* -o -path */bower_components/*'
# Locks and generated files are read by nobody, images and archives by other programs.
unread='-name *.lock -o -name *.min.js -o -name *.min.css -o -name *.map -o -name *.svg
	-o -name package-lock.json -o -name npm-shrinkwrap.json -o -name pnpm-lock.yaml -o -name go.sum
	-o -name *.png -o -name *.jpg -o -name *.jpeg -o -name *.gif -o -name *.ico -o -name *.webp
	-o -name *.pdf -o -name *.zip -o -name *.gz -o -name *.xz -o -name *.bz2 -o -name *.zst
	-o -name *.tar -o -name *.jar -o -name *.woff -o -name *.woff2 -o -name *.ttf -o -name *.otf
	-o -name *.mp3 -o -name *.mp4 -o -name *.so -o -name *.a -o -name *.o -o -name *.pyc'

# regular LIST EXPRESSION…: which names of LIST are regular files and match.
regular() {
	list=$1
	shift
	if [ $nul = yes ]; then print=-print0; else print=-print; fi
	# One find per batch of names; the expression comes after them.
	each "$list" sh -c '
		expression=$1 print=$2
		shift 2
		set -f
		find "$@" -prune -type f $expression $print 2>/dev/null
	' sh "$*" $print
}

# The names of the untracked and the tracked, as git has them.
git_names() {
	if [ $nul = yes ]; then
		git_ ls-files -z --cached --others --exclude-standard "$@" 2>/dev/null
	else
		git_ -c core.quotePath=false ls-files --cached --others --exclude-standard "$@" 2>/dev/null |
			grep -v '^"'
	fi
}

# Every name gets "./" in front.
dotted() {
	if [ $nul = yes ]; then
		xargs -0 sh -c 'for f; do printf "./%s\\000" "$f"; done' sh
	else
		sed 's|^|./|'
	fi
}

list_with_git() {
	# An unmerged file is listed once per side by a git without --deduplicate.
	if git_ ls-files --deduplicate -- :/no-such-name >/dev/null 2>&1; then
		git_names --deduplicate >"$scratch/raw"
	else
		git_names >"$scratch/raw"
	fi
	[ -s "$scratch/raw" ] || return 0
	dotted <"$scratch/raw" >"$scratch/listed"
	regular "$scratch/listed" >"$scratch/files"
	if [ "$(count_of "$scratch/listed")" -ne "$(count_of "$scratch/files")" ]; then
		each "$scratch/listed" sh -c '
			for f; do
				if [ -L "$f" ]; then :
				elif [ -d "$f" ]; then echo directory
				elif [ ! -e "$f" ]; then echo missing
				fi
			done' sh >"$scratch/odd"
		n=$(grep -c directory "$scratch/odd")
		[ "$n" -eq 0 ] || unseen "$n submodule(s) or nested repositories: not entered"
		n=$(grep -c missing "$scratch/odd")
		[ "$n" -eq 0 ] || unseen "$n tracked file(s) that are not on disk (deleted or left out of the checkout)"
	fi
}

list_with_find() {
	if [ $nul = yes ]; then print=-print0; else print=-print; fi
	# Without -print0 such a name would be taken for two.
	if [ $nul = no ]; then set -- ! -path '*
*'; else set --; fi
	find . -type d \( -name .git -o -name .hg -o -name .svn -o -name .jj \) -prune \
		-o -type d \( -name node_modules -o -name target -o -name .venv -o -name venv \
		-o -name __pycache__ -o -name .tox -o -name .cache \) -exec sh -c 'echo "$#" >&3' sh {} + -prune \
		-o -type f "$@" $print 3>"$scratch/skipped" >"$scratch/files" 2>"$scratch/find-errors"
	n=$(awk '{ n += $1 } END { print n + 0 }' "$scratch/skipped")
	[ "$n" -eq 0 ] || unseen "$n directories of dependencies or build output (node_modules, target, …), skipped by name"
	n=$(wc -l <"$scratch/find-errors" | tr -d ' \t')
	[ "$n" -eq 0 ] || unseen "$n place(s) that may not be read"
}

# Sets git_state and says in one line why git tells nothing, if so.
ask_git() {
	git_state=none
	if ! command -v git >/dev/null 2>&1; then
		unseen 'the history: git is not installed'
	elif git_ rev-parse --is-inside-work-tree >"$scratch/answer" 2>"$scratch/refusal"; then
		if [ "$(cat "$scratch/answer")" != true ]; then
			unseen 'the history: this is inside a git directory, not a work tree'
		elif git_ rev-parse -q --verify 'HEAD^{commit}' >/dev/null 2>&1; then
			git_state=works
		else
			git_state=no-commit
			unseen 'the history: the repository has no commit yet'
		fi
	elif grep -q -e 'dubious ownership' -e 'unsafe repository' "$scratch/refusal"; then
		unseen 'the history: git refuses this repository because somebody else owns it (see safe.directory in git help config)'
	elif grep -q 'not a git repository' "$scratch/refusal" && [ ! -e .git ]; then
		unseen 'the history: this is not a git repository'
	else
		reason=$(awk_ first-line "$scratch/refusal")
		unseen "the history: git refuses this repository: $reason"
	fi
}

take_inventory() {
	say 'taking the inventory'
	: >"$scratch/files"
	{
		SURVEYED=$(pwd)
		export SURVEYED
		awk_ directory
		ask_git
		if [ "$git_state" != none ]; then
			list_with_git
			if [ ! -s "$scratch/files" ] && git_ check-ignore -q . 2>/dev/null; then
				unseen 'the history: git ignores this directory as a whole'
				git_state=none
			fi
		fi
		if [ "$git_state" = none ]; then
			list_with_find
		fi
		if [ "$git_state" = works ]; then
			fact commit "$(git_ log -1 --format='%h of %ad' --date=short)"
			branch=$(git_ symbolic-ref -q --short HEAD | awk_ first-line)
			[ -z "$branch" ] || fact branch "$branch"
			if [ -n "$(git_ rev-parse --show-prefix)" ]; then
				fact part 'a part of its repository'
			fi
		fi
		if [ $nul = no ]; then
			unseen 'names with a newline or the like: find and xargs of this machine have no -print0 and -0'
		fi
		fact files "$(count_of "$scratch/files")"
	} >"$scratch/facts"
	printf '%s\n' "$git_state" >"$scratch/git-state"
	regular "$scratch/files" "! ( $vendored ) ! ( $unread ) -size -4194305c" >"$scratch/text"
	names_of "$scratch/files" >"$scratch/names"
	say "$(count_of "$scratch/files") files, $(count_of "$scratch/text") of them to read"
}
