"""What every room may use and nothing else is shared: checks, findings, verdicts, majorities and words."""
