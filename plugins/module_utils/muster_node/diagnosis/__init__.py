"""What a node can say of a launch that failed or hangs, without changing it."""
