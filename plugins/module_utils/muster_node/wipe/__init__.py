"""What of Muster's own lies on a node, and taking it off (library/wipe_node.py)."""
