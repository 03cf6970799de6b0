# housekeeping.awk NAMES PART: what a repository has at its top. PART is not empty
# where only a part of one is surveyed, whose top is elsewhere.
BEGIN {
	while ((getline line < ARGV[1]) > 0) {
		files++
		low = tolower(line)
		if (language(line) != "") sources++
		if (low ~ /^\.\/(docs\/|\.github\/)?readme(\.[a-z]+)?$/) readme = 1
		if (low ~ /^\.\/((licen[cs]e|copying|unlicense|copyright)([.-][a-z0-9.-]+)?$|licenses\/)/) licence = 1
		if (low ~ /^\.\/(\.github\/workflows|\.circleci|\.buildkite|\.gitea\/workflows|\.forgejo\/workflows|\.builds|\.ci|ci|\.woodpecker|\.teamcity)\/./) ci = 1
		if (low ~ /^\.\/(\.gitlab-ci\.yml|\.travis\.yml|jenkinsfile|azure-pipelines\.ya?ml|appveyor\.yml|\.appveyor\.yml|\.drone\.yml|\.woodpecker\.ya?ml|bitbucket-pipelines\.yml|\.cirrus\.yml|\.build\.yml|cloudbuild\.yaml)$/) ci = 1
	}
	if (ARGV[2] != "" || !files) exit
	counted = files " file" (files == 1 ? "" : "s")
	if (!readme)
		finding("docs", 4, "-", "none of " counted, "no README", "Somebody new cannot see what this is, how to build it or whom to ask.")
	if (!licence && sources)
		finding("licence", 3, "-", "none of " counted, "no licence", "Without one nobody else may use, change or pass on the code.")
	if (!ci && sources)
		finding("ci", 3.5, "-", "none of " counted, "no continuous integration that the survey knows", "A mistake is found by the next person who builds, not by the one who made it.")
	exit
}
