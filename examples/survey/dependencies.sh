# Dependency files: versions that float, lock files that are missing.
. "${0%/*}/lib.sh"
. "$here/inventory.sh"
read_prompt
regular "$inventory/files" "! ( $vendored ) ( -name Cargo.toml -o -name package.json -o -name composer.json
	-o -name requirements*.txt -o -name *-requirements.txt -o -path */requirements/*.txt
	-o -name pyproject.toml -o -name Pipfile -o -name go.mod -o -name Gemfile
	-o -name Dockerfile* -o -name *.dockerfile -o -name Containerfile
	-o -path */.github/workflows/*.yml -o -path */.github/workflows/*.yaml ) -size -1048577c" >"$scratch/manifests"
fact dependency-files "$(count_of "$scratch/manifests")"
say "$(count_of "$scratch/manifests") dependency files"
each "$scratch/manifests" awk -f "$here/escape.awk" -f "$here/dependencies.awk" "$inventory/names" |
	sort -t "$TAB" -k 3,3nr | head -n 300
