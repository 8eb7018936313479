"""What a node has now, what was last installed on it, and what its logs say of who changed it."""
