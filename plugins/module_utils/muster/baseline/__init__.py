"""Compute the changes that the role node_baseline makes on one node, from the requested state and the node's current
state."""
