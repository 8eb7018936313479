"""Data collection on a node: one module per subject, with the name of the check module that uses it."""
