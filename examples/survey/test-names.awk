# test-names.awk: names, one a line; says whether one looks like a test.
testlike($0) || /(Test|Tests|Spec)\.[a-z]+$|\.(bats|t)$/ { print "any"; exit }
