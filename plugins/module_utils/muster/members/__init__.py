"""Membership of nodes: quarantine, release, and nodes that leave the cluster."""
