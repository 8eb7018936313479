"""Membership of nodes in the cluster: joining, leaving, and quarantine."""
