"""What a node is beside what the role node_baseline asks of it, and who else is at work there."""
