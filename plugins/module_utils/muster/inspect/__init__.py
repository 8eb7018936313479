"""The first look at every node: its facts, and what stands against going on, on one node and between nodes."""
