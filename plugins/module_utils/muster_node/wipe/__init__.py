"""Muster's files on a node, and their removal (library/wipe_node.py)."""
