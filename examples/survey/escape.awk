# Functions for every awk program of the survey. Plain POSIX awk on bytes.

BEGIN {
	for (i = 1; i < 256; i++) ORD[sprintf("%c", i)] = i
	NUL = sprintf("%c", 0)
	# Some awks end a string at NUL; those see binary files by their other bytes.
	NUL_WORKS = length(NUL) == 1 && index("ab" NUL "c", NUL) == 3
}

# The text with everything that could move a cursor or fake a line made visible.
# Well-formed UTF-8 stays; other bytes become \xHH, a backslash becomes \\.
function esc(s,    n, i, c, o, need, k, cp, part, out) {
	if (s !~ /[^ -~]|\\/) return s
	n = length(s)
	out = ""
	for (i = 1; i <= n; i++) {
		c = substr(s, i, 1)
		o = (c in ORD) ? ORD[c] : 0
		if (o >= 32 && o < 127) {
			out = out (c == "\\" ? "\\\\" : c)
			continue
		}
		if (o == 10) { out = out "\\n"; continue }
		if (o == 9) { out = out "\\t"; continue }
		need = (o >= 194 && o < 224) ? 1 : (o >= 224 && o < 240) ? 2 : (o >= 240 && o < 245) ? 3 : 0
		cp = need == 1 ? o - 192 : need == 2 ? o - 224 : o - 240
		part = c
		for (k = 1; k <= need; k++) {
			c = substr(s, i + k, 1)
			if (!(c in ORD) || ORD[c] < 128 || ORD[c] > 191) break
			cp = cp * 64 + ORD[c] - 128
			part = part c
		}
		if (need && k > need && printable(need, cp)) {
			out = out part
			i += need
		} else out = out sprintf("\\x%02x", o)
	}
	return out
}

# Neither overlong, surrogate, C1 control, invisible nor a change of direction.
function printable(need, cp) {
	if (need == 2 && cp < 2048 || need == 3 && (cp < 65536 || cp > 1114111)) return 0
	if (cp < 160 || cp >= 55296 && cp < 57344) return 0
	if (cp == 173 || cp == 1564 || cp == 65279) return 0
	if (cp >= 8203 && cp <= 8207 || cp >= 8232 && cp <= 8238 || cp >= 8288 && cp <= 8303) return 0
	if (cp >= 917504 && cp < 921600) return 0
	return 1
}

# A name as the lists have it ("./" first), for people.
function shown(name) {
	sub(/^\.\//, "", name)
	return esc(name)
}

# A line of a file as a short quotation of at most about `max` bytes.
function quote(s, max) {
	gsub(/[ \t\r]+/, " ", s)
	sub(/^ /, "", s)
	sub(/ $/, "", s)
	return clip(esc(substr(s, 1, 400)), max)
}

# At most `max` bytes, cut between characters and not inside an escape.
function clip(s, max) {
	if (length(s) <= max) return s
	s = substr(s, 1, max)
	while (s != "" && ORD[substr(s, length(s))] >= 128 && ORD[substr(s, length(s))] < 192) s = substr(s, 1, length(s) - 1)
	if (s != "" && ORD[substr(s, length(s))] >= 192) s = substr(s, 1, length(s) - 1)
	sub(/\\x?[0-9a-f]?$/, "", s)
	return s "…"
}

function binary(line) {
	return line ~ /[\001-\010\016-\032]/ || NUL_WORKS && index(line, NUL)
}

# For an awk that cannot see NUL itself: see verify.awk.
function hides_nul(file,    quoted_name, command, count) {
	if (NUL_WORKS) return 0
	quoted_name = file
	gsub(/'/, "'\\''", quoted_name)
	command = "dd bs=8192 count=1 2>/dev/null <'" quoted_name "' | tr -dc '\\000' | wc -c"
	command | getline count
	close(command)
	return count + 0 > 0
}

# The part of a name after its last dot, in lower case; "" if there is none.
function extension(name) {
	sub(/^.*\//, "", name)
	if (name !~ /[^.]\.[^.]*$/) return ""
	sub(/^.*\./, "", name)
	return tolower(name)
}

# Whether a line near the top says that a program wrote the file.
function generated(line) {
	return line ~ /@generated|DO NOT EDIT|[Dd]o not edit|[Aa]uto(matically)?[- ]?generated|[Gg]enerated (by|from|with|using) /
}

# The language of a name, "" where it is not source code.
function language(name,    e) {
	if (!LANGUAGES) {
		LANGUAGES = split("rs Rust|c C|h C|cc C++|cpp C++|cxx C++|hpp C++|go Go|py Python|rb Ruby|" \
			"js JavaScript|mjs JavaScript|cjs JavaScript|jsx JavaScript|ts TypeScript|tsx TypeScript|" \
			"java Java|kt Kotlin|scala Scala|swift Swift|m Objective-C|cs C#|fs F#|php PHP|pl Perl|pm Perl|" \
			"lua Lua|r R|jl Julia|hs Haskell|ml OCaml|ex Elixir|exs Elixir|erl Erlang|clj Clojure|zig Zig|" \
			"dart Dart|sh Shell|bash Shell|zsh Shell|awk awk|sql SQL|vue Vue|svelte Svelte|nim Nim|d D|" \
			"vim Vim|el Lisp|lisp Lisp|scm Scheme|f90 Fortran|pas Pascal|tcl Tcl|ps1 PowerShell", LANG_LIST, "|")
		for (LANG_I = 1; LANG_I <= LANGUAGES; LANG_I++) {
			split(LANG_LIST[LANG_I], LANG_PAIR, " ")
			LANG_OF[LANG_PAIR[1]] = LANG_PAIR[2]
		}
	}
	e = extension(name)
	return (e in LANG_OF) ? LANG_OF[e] : ""
}

# Whether a name is that of a test, an example or a fixture.
function testlike(name) {
	name = tolower(name)
	return name ~ /(^|[\/_.-])(tests?|spec|specs|testing|testdata|fixtures?|__tests__|e2e)([\/_.-]|$)/
}

# One finding; path and evidence escaped already. With `file` it is to go through
# verify.awk.
function finding(kind, score, path, evidence, title, reason, file) {
	printf "finding\t%s\t%.2f\t%s\t%s\t%s\t%s%s\n", kind, score, path, evidence, title, reason, (file == "" ? "" : "\t" file)
}

# A name as a field of its own for verify.awk.
function raw(file) {
	gsub(/\n/, "\001", file)
	return file
}
