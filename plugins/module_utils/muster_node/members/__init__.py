"""The quarantine record on a node."""
