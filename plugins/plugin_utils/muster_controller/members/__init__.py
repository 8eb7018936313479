"""Cluster membership of nodes: joining, leaving, and quarantine."""
