"""Inspect a node for several steps of site.yml in one call."""
