"""Building blocks shared by all packages: checks, findings, verdicts, majorities and words."""
