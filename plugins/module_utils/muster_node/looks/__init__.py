"""Data collectors on a node: one module per subject. Each collector has the name of the check module that uses its
data."""
