"""Find and remove Muster's files on a node (library/wipe_node.py)."""
