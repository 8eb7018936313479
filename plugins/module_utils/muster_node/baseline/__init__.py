"""Node side of the role node_baseline: read the node's state and compare it with the request."""
