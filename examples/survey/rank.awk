# rank.awk: passes facts and unseen lines on and turns findings into
#   item NUMBER KIND EVIDENCE TITLE REASON
# by score × weight of the kind, where the question's words set the weights, a
# little more for a file in which several kinds meet, and a little less for each
# further finding of one kind, so that one kind does not fill the page.
BEGIN {
	FS = "\t"
	MOST = 20
	topic("tests", "test tests tested testing untested coverage spec specs tdd unittest unittests")
	topic("dependencies", "dependency dependencies depend depends package packages library libraries crate crates pin pinned unpinned version versions lock lockfile lockfiles upgrade upgrades outdated supply vendor")
	topic("history", "history churn commit commits changed changes changing often author authors hotspot hotspots git")
	topic("size", "size sizes large larger largest long longest big bigger biggest huge split refactor refactoring complex complexity lines simplify")
	topic("markers", "marker markers todo todos fixme fixmes hack hacks xxx debt conflict conflicts bug bugs unfinished")
	topic("docs", "doc docs document documentation documented readme newcomer newcomers onboarding explain")
	topic("licence", "licence license licences licenses licensing legal copyright")
	topic("ci", "ci pipeline pipelines automation continuous")
	topic("security", "security secure insecure secret secrets key keys password passwords leak leaks leaked credential credentials")
	# A question about security is one about what gets in from outside, too.
	topic("dependencies", "security secure insecure vulnerability vulnerabilities")
}

function topic(kind, list,    part, n, k) {
	n = split(list, part, " ")
	for (k = 1; k <= n; k++) kinds_of[part[k]] = kinds_of[part[k]] " " kind
}

# 0.9 to the power of `times`; not every awk is built with "^".
function fade(times,    f) {
	for (f = 1; times > 0; times--) f *= 0.9
	return f
}

# Whether the question turns the topics after its word k down ("skip the tests",
# "don't care about docs or CI"): from such a word on, for as long as only words
# like "the", "about" and "or" and other topics follow. "Not" before a participle
# says that something is missing, and that is what was asked for ("not tested").
function turned(k, less) {
	if (word[k] ~ /^(ignore|ignoring|skip|skipping|except|excluding|besides)$/) return 1
	if (word[k] == "not" || word[k] == "dont" || word[k] == "t" && word[k - 1] == "don") return word[k + 1] !~ /ed$/ || word[k + 1] ~ /^(need|interested|bothered)$/
	return less && word[k] ~ /^(the|a|an|any|all|about|for|of|to|in|on|with|at|and|or|nor|care|bother|bothered|mind|look|looking|want|need|hear|see|show|me|interested|worry)$/
}

$1 == "fact" && $2 == "words" { words = $3; next }
# The lists of markers are cut; how many there were is known all the same.
$1 == "fact" && $2 ~ /^markers-/ { markers += $3; next }
$1 == "finding" && NF == 7 {
	n++
	kind[n] = $2; score[n] = $3 + 0; path[n] = $4; evidence[n] = $5; title[n] = $6; reason[n] = $7
	total[$2]++
	if ($4 != "-" && !(($4, $2) in met)) { met[$4, $2] = 1; kinds_at[$4] = kinds_at[$4] " " $2; meeting[$4]++ }
	next
}
$1 == "fact" || $1 == "unseen" { print }

END {
	count = split(words, word, " ")
	for (k = 1; k <= count; k++) {
		if (!(word[k] in kinds_of)) {
			less = turned(k, less)
			continue
		}
		m = split(kinds_of[word[k]], moved, " ")
		for (j = 1; j <= m; j++) {
			if (moved[j] in weight) continue
			weight[moved[j]] = less ? 0.25 : 3
			said = said (said == "" ? "" : ", ") moved[j] (less ? " ×0.25" : " ×3") " (\"" word[k] "\"" \
				(total[moved[j]] ? "" : ", nothing found") ")"
		}
	}
	if (said == "") print "fact\tmoved\tno word of the question names a topic of the survey, so every kind counts alike"
	else print "fact\tmoved\tby its words the question changed the weights: " said
	print "fact\tfindings\t" n + 0

	for (i = 1; i <= n; i++) {
		value[i] = score[i] * ((kind[i] in weight) ? weight[kind[i]] : 1)
		if (meeting[path[i]] > 1) value[i] *= 1 + 0.1 * (meeting[path[i]] - 1)
	}
	for (rank = 1; rank <= MOST && rank <= n; rank++) {
		best = 0
		for (i = 1; i <= n; i++) {
			if (taken[i]) continue
			now = value[i] * fade(used[kind[i]] + 0)
			# Equal values are ordered by evidence, so that two runs agree.
			if (!best || now > top || now == top && evidence[i] < evidence[best]) { best = i; top = now }
		}
		taken[best] = 1
		used[kind[best]]++
		also = ""
		m = split(kinds_at[path[best]], other, " ")
		for (j = 1; j <= m; j++) if (other[j] != kind[best]) also = also (also == "" ? "" : ", ") other[j]
		print "item\t" rank "\t" kind[best] "\t" evidence[best] "\t" title[best] "\t" reason[best] (also == "" ? "" : " (Also found here: " also ".)")
	}
	if (markers > total["markers"]) total["markers"] = markers
	for (k in total) if (total[k] > used[k]) print "more\t" k "\t" total[k] - used[k]
}
