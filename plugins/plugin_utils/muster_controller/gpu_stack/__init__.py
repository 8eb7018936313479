"""What a node is given for its GPUs that only the controller can say."""
