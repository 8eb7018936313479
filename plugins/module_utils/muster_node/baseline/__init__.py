"""Read the state of a node and compare it with a baseline request (role node_baseline)."""
