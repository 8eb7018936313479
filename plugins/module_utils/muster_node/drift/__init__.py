"""Drift of a node: its current state, the record of its last installation, and who changed it according to its logs."""
