"""The node's record of its quarantine."""
