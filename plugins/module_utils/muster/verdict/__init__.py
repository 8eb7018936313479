"""Building blocks that all packages share: checks, findings, verdicts, majorities and wording."""
