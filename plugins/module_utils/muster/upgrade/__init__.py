"""Another PyTorch for nodes that are in use: who changes, in which order, what is tried, and how to go back."""
