"""Cluster membership: quarantine, release from quarantine, and removal of nodes from the cluster."""
