# secrets.awk FILE…: private keys, and values of secrets in a .env file. The
# values themselves are never printed.
BEGIN {
	for (i = 1; i < ARGC; i++) {
		file = ARGV[i]
		env = file ~ /\/\.env(\.(local|production|prod|staging))?$/
		n = 0
		while ((getline line < file) > 0) {
			n++
			if (n < 50 && binary(line)) break
			if (line ~ /^-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----[ \t\r]*$/) {
				name = shown(file)
				finding("security", testlike(file) ? 5 : 9, name, name ":" n, "a private key", \
					"Whoever has a clone has the key: replace it; if it is only for tests, say so beside it.")
				break
			}
			if (env && line ~ /^[ \t]*(export[ \t]+)?[A-Za-z0-9_]*(SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY)[A-Za-z0-9_]*=["']?[^ \t"'$<]/) {
				name = shown(file)
				value = line
				sub(/=.*/, "", value)
				finding("security", 8, name, name ":" n, quote(value, 60) " has a value here", \
					"git does not ignore this file, so the value is or will be in the history.")
				break
			}
		}
		close(file)
	}
	exit
}
