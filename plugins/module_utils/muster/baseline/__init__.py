"""What the role node_baseline must change on one node, from what was requested and what was seen there."""
