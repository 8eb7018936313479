"""The status screen of a cluster."""
