"""Compute the changes of the role node_baseline on one node from the request and the node's state."""
