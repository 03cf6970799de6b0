# What every script of the survey starts with: `. "${0%/*}/lib.sh"`.
#
# Lines that agents print for each other, fields separated by a tab:
#   fact     KEY VALUE…                             what was counted
#   unseen   TEXT                                   what could not be looked at
#   finding  KIND SCORE PATH EVIDENCE TITLE REASON  SCORE 0–10; PATH may be "-"
# Everything that comes from the surveyed directory is escaped before it is
# printed (escape.awk), so a field holds no tab, no newline and no control byte.
#
# Nothing is written into the surveyed directory, which is the current one.

set -u
for tool in awk cat dd find grep head mkdir sed sort tail tr wc xargs; do
	if ! command -v $tool >/dev/null 2>&1; then
		printf 'the survey needs %s, which is not on PATH\n' $tool >&2
		exit 127
	fi
done
# Bytes, not characters: names need not be UTF-8.
LC_ALL=C
export LC_ALL
umask 077

# A git hook sets these for its own repository; here they would show another.
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR \
	GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE GIT_PREFIX GIT_CONFIG \
	GIT_CONFIG_PARAMETERS GIT_CONFIG_COUNT GIT_GRAFT_FILE GIT_SHALLOW_FILE \
	GIT_REPLACE_REF_BASE GIT_NO_REPLACE_OBJECTS GIT_IMPLICIT_WORK_TREE \
	GIT_INTERNAL_SUPER_PREFIX GIT_LITERAL_PATHSPECS GIT_GLOB_PATHSPECS \
	GIT_NOGLOB_PATHSPECS GIT_ICASE_PATHSPECS GIT_EXTERNAL_DIFF
# Reading must not refresh the index, fetch missing objects or ask anybody.
GIT_OPTIONAL_LOCKS=0
GIT_NO_LAZY_FETCH=1
GIT_TERMINAL_PROMPT=0
export GIT_OPTIONAL_LOCKS GIT_NO_LAZY_FETCH GIT_TERMINAL_PROMPT

here=${0%/*}
TAB=$(printf '\t')
offspring=${OFFSPRING_BIN:-offspring}

# scratch: a directory of this session, never inside the surveyed one.
scratch=${OFFSPRING_SCRATCH:-}
if [ ! -d "$scratch" ] || [ ! -w "$scratch" ]; then
	scratch=${TMPDIR:-/tmp}/survey.$$
	mkdir "$scratch" || exit 1
	trap 'rm -rf "$scratch"' 0
	trap 'exit 130' 1 2 13 15
fi

fact() { printf 'fact\t%s\t%s\n' "$1" "$2"; }
unseen() { printf 'unseen\t%s\n' "$1"; }
# The last line of stderr is what a watcher of the tree sees of an agent.
say() { printf '%s\n' "$*" >&2; }

# Repository configuration can name programs (fsmonitor, signatures, pagers) and
# remotes: a survey of somebody's directory runs and contacts none of them.
git_() {
	git --no-pager -c core.fsmonitor=false -c log.showSignature=false \
		-c protocol.allow=never "$@"
}

# awk with the shared functions. awk_ PROGRAM [OPERAND…]
awk_() {
	program=$1
	shift
	awk -f "$here/escape.awk" -f "$here/$program.awk" "$@"
}

# find -print0 and xargs -0 are in POSIX since 2024 and older in GNU, BSD and
# busybox. Without them lists are lines and a name with a newline is unseen.
if [ "$(find / -prune -print0 2>/dev/null | xargs -0 printf '%s' 2>/dev/null)" = / ]; then
	nul=yes
else
	nul=no
fi

# each LIST COMMAND…: COMMAND with the names of LIST appended, many at a time.
each() {
	list=$1
	shift
	if [ ! -s "$list" ]; then
		return 0
	elif [ $nul = yes ]; then
		xargs -0 "$@" <"$list"
	else
		sed 's/[^A-Za-z0-9_./-]/\\&/g' "$list" | xargs "$@"
	fi
}

# names_of LIST: one line per name; \001 stands for a newline in the name.
names_of() {
	if [ $nul = yes ]; then
		tr '\n\000' '\001\n' <"$1"
	else
		cat "$1"
	fi
}

count_of() { names_of "$1" | wc -l | tr -d ' \t'; }

# Reads the prompt from stdin: the question, and as its last line the inventory
# a parent has taken. Without that line the agent takes its own.
read_prompt() {
	cat >"$scratch/prompt"
	inventory=$(sed -n "s/^inventory$TAB//p" "$scratch/prompt" | tail -n 1)
	if [ ! -f "$inventory/files" ] || [ ! -f "$inventory/facts" ]; then
		. "$here/inventory.sh"
		inventory=$scratch
		take_inventory
	fi
	git_state=$(cat "$inventory/git-state")
}
