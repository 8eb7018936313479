"""What the nodes have now, and what the steps would change on them."""
