# dependencies.awk NAMES FILE…: what in each dependency file may change by itself.
# NAMES is the inventory, for the lock files beside or above a file.
BEGIN {
	while ((getline line < ARGV[1]) > 0) present[line] = 1
	for (i = 2; i < ARGC; i++) {
		file = ARGV[i]
		base = file
		sub(/^.*\//, "", base)
		folder = substr(file, 1, length(file) - length(base) - 1)
		name = shown(file)
		if (base == "Cargo.toml") cargo()
		else if (base == "package.json") json("dependencies|devDependencies|optionalDependencies", \
			"package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb")
		else if (base == "composer.json") json("require|require-dev", "composer.lock")
		else if (base == "pyproject.toml") pyproject()
		else if (base == "Pipfile") pipfile()
		else if (base == "go.mod") gomod()
		else if (base == "Gemfile") gemfile()
		else if (base ~ /\.txt$/) requirements()
		else if (base ~ /\.ya?ml$/) workflow()
		else dockerfile()
		close(file)
	}
	exit
}

function floats(line_number, score, title, reason) {
	if (testlike(file)) score *= 0.6
	finding("dependencies", score, name, name ":" line_number, title, reason)
}

# Whether one of these lock files lies beside the file or in a folder above it.
function locked(locks,    list, count, k, at) {
	count = split(locks, list, " ")
	for (at = folder; ; sub(/\/[^\/]*$/, "", at)) {
		for (k = 1; k <= count; k++) if ((at "/" list[k]) in present) return 1
		if (at !~ /\//) return 0
	}
}

# The first string in quotes of either kind, without them.
function quoted(s) {
	if (!match(s, /"[^"]*"|'[^']*'/)) return ""
	return substr(s, RSTART + 1, RLENGTH - 2)
}

function cargo(    n, section, dep, value, has_lock, first, many, inner) {
	has_lock = locked("Cargo.lock")
	while ((getline line < file) > 0) {
		n++
		sub(/\r$/, "", line)
		if (line ~ /^[ \t]*\[/) {
			section = line
			gsub(/[ \t]/, "", section)
			sub(/#.*/, "", section)
			inner = ""
			if (section ~ /dependencies\.[A-Za-z0-9_-]+\]$/) {
				inner = section
				sub(/.*\./, "", inner)
				sub(/\]$/, "", inner)
				if (!first) first = n
				many++
			}
			continue
		}
		if (line !~ /^[ \t]*[A-Za-z0-9_."-]+[ \t]*=/) continue
		dep = line
		sub(/[ \t]*=.*/, "", dep)
		gsub(/[ \t"]/, "", dep)
		value = line
		sub(/^[^=]*=[ \t]*/, "", value)
		if (inner != "") {
			if (dep == "version" && quoted(value) == "*")
				floats(n, 7, inner ": any version (\"*\")", "A version that breaks the build is accepted like any other.")
			continue
		}
		if (section !~ /^\[(.*\.)?(dev-|build-)?dependencies\]$/) continue
		if (!first && value !~ /path[ \t]*=/) first = n
		many++
		if (value ~ /^"\*"|version[ \t]*=[ \t]*"\*"/)
			floats(n, 7, esc(dep) ": any version (\"*\")", "A version that breaks the build is accepted like any other.")
		else if (!has_lock && value ~ /git[ \t]*=/ && value !~ /(rev|tag)[ \t]*=/)
			floats(n, 6, esc(dep) ": follows a branch of a git repository", "Nothing records which commit was built last time.")
	}
	if (first && !has_lock)
		floats(first, 5, many " dependencies and no Cargo.lock", "Without it two builds on two days may use different versions.")
}

function requirements(    n, dep, spec) {
	while ((getline line < file) > 0) {
		n++
		sub(/\r$/, "", line)
		sub(/(^|[ \t])#.*/, "", line)
		if (line !~ /^[ \t]*[A-Za-z0-9]/ || line ~ /[ \t]@[ \t]|:\/\//) continue
		sub(/;.*/, "", line)
		if (line ~ /==/) continue
		# A line of prose is no requirement: the file has another purpose.
		if (line !~ /^[ \t]*[A-Za-z0-9][A-Za-z0-9._-]*[ \t]*(\[[^]]*\])?[ \t]*([<>~!].*)?(\\)?[ \t]*$/) continue
		gsub(/[ \t]/, "", line)
		if (line ~ /[<>~!]/)
			floats(n, 6, esc(line) ": a range, no version", "The next installation may get another version than the last one.")
		else
			floats(n, 6.5, esc(line) ": no version at all", "The next installation may get another version than the last one.")
	}
}

# The sections of a JSON object that map names to versions.
function json(sections, locks,    n, depth, token, pending, key, value, has_lock, wanted, list, count, k, after_colon) {
	count = split(sections, list, "|")
	for (k = 1; k <= count; k++) wanted[list[k]] = 1
	has_lock = locked(locks)
	split("", key)
	depth = 0
	while ((getline line < file) > 0) {
		n++
		while (match(line, /"([^"\\]|\\.)*"|[][{}:,]/)) {
			token = substr(line, RSTART, RLENGTH)
			line = substr(line, RSTART + RLENGTH)
			if (token == "{" || token == "[") { depth++; key[depth] = ""; after_colon = 0 }
			else if (token == "}" || token == "]") { depth--; after_colon = 0 }
			else if (token == ":") after_colon = 1
			else if (token == ",") after_colon = 0
			else if (!after_colon) key[depth] = substr(token, 2, length(token) - 2)
			else {
				after_colon = 0
				value = substr(token, 2, length(token) - 2)
				if (depth != 2 || !(key[1] in wanted) || key[2] ~ /^(php|ext-.*)$/) continue
				if (value == "*" || value == "latest" || value == "" || value == "x")
					floats(n, 7, esc(key[2]) ": any version (\"" esc(value) "\")", has_lock ? \
						"The lock file holds it back only until somebody updates it." : \
						"A version that breaks the build is accepted like any other.")
				else if (!has_lock && value ~ /^[~^>]/)
					floats(n, 5.5, esc(key[2]) ": a range (" esc(value) ") and no lock file", \
						"The next installation may get another version than the last one.")
			}
		}
	}
}

function pyproject(    n, section, inside, item, has_lock) {
	has_lock = locked("uv.lock poetry.lock pdm.lock pylock.toml")
	while ((getline line < file) > 0) {
		n++
		sub(/\r$/, "", line)
		if (!inside && line ~ /^[ \t]*\[/) { section = line; gsub(/[ \t]/, "", section); sub(/#.*/, "", section); continue }
		if (has_lock) continue
		if (section ~ /^\[tool\.poetry\.(group\..*\.)?(dev-)?dependencies\]$/ && line ~ /^[ \t]*[A-Za-z0-9_.-]+[ \t]*=[ \t]*"\*"/) {
			item = line
			sub(/[ \t]*=.*/, "", item)
			floats(n, 6.5, esc(item) ": any version (\"*\") and no lock file", "The next installation may get another version than the last one.")
		}
		if (section == "[project]" && line ~ /^dependencies[ \t]*=[ \t]*\[/) { inside = 1; sub(/^[^[]*\[/, "", line) }
		if (!inside) continue
		while (match(line, /"[^"]*"|'[^']*'|\]|#/)) {
			item = substr(line, RSTART, RLENGTH)
			line = substr(line, RSTART + RLENGTH)
			if (item == "#") break
			if (item == "]") { inside = 0; break }
			item = substr(item, 2, length(item) - 2)
			sub(/[ \t]*;.*/, "", item)
			if (item ~ /^[A-Za-z0-9._-]+[ \t]*(\[[^]]*\])?$/)
				floats(n, 5.5, esc(item) ": no version at all and no lock file", "The next installation may get another version than the last one.")
		}
	}
}

function pipfile(    n, item) {
	if (locked("Pipfile.lock")) return
	while ((getline line < file) > 0) {
		n++
		if (line !~ /^[A-Za-z0-9_."-]+[ \t]*=[ \t]*"\*"/) continue
		item = line
		sub(/[ \t]*=.*/, "", item)
		floats(n, 6.5, esc(item) ": any version (\"*\") and no Pipfile.lock", "The next installation may get another version than the last one.")
	}
}

function gomod(    n) {
	if (locked("go.sum")) return
	while ((getline line < file) > 0) {
		n++
		if (line !~ /^require[ \t(]/) continue
		floats(n, 5, "requirements and no go.sum", "Nothing checks that a module is the one that was reviewed.")
		return
	}
}

function gemfile(    n, item, tail) {
	if (locked("Gemfile.lock gems.locked")) return
	while ((getline line < file) > 0) {
		n++
		sub(/[ \t]#.*/, "", line)
		if (line !~ /^[ \t]*gem[ \t(]+["']/) continue
		item = quoted(line)
		tail = substr(line, index(line, item) + length(item) + 1)
		if (tail ~ /["'][ \t]*[~<>=0-9]/ || tail ~ /(git|github|path)[:" ']/) continue
		floats(n, 6, esc(item) ": no version and no Gemfile.lock", "The next installation may get another version than the last one.")
	}
}

function workflow(    n, item) {
	while ((getline line < file) > 0) {
		n++
		if (line !~ /^[ \t]*(-[ \t]*)?uses:[ \t]*[^ \t#]+@(main|master|HEAD|latest)[ \t\r]*(#.*)?$/) continue
		item = line
		sub(/^.*uses:[ \t]*/, "", item)
		sub(/[ \t\r].*/, "", item)
		floats(n, 5.5, esc(item) ": an action that follows a branch", "Whoever can push there runs code in this pipeline.")
	}
}

function dockerfile(    n, part, count, image, k, stage) {
	split("", stage)
	while ((getline line < file) > 0) {
		n++
		sub(/\r$/, "", line)
		if (toupper(line) !~ /^[ \t]*FROM[ \t]/) continue
		count = split(line, part, /[ \t]+/)
		k = part[1] == "" ? 3 : 2
		while (k <= count && part[k] ~ /^--/) k++
		image = part[k]
		if (toupper(part[k + 1]) == "AS") stage[tolower(part[k + 2])] = 1
		if (image == "" || image == "scratch" || image ~ /[$@]/ || tolower(image) in stage) continue
		if (image ~ /:latest$/ || image !~ /:[^\/]*$/)
			floats(n, 5, esc(image) ": an image without a fixed tag", "The image changes under a build that did not.")
	}
}
