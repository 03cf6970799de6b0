# The surveyed directory, which may have any name.
BEGIN { print "fact\tdirectory\t" esc(ENVIRON["SURVEYED"]) }
