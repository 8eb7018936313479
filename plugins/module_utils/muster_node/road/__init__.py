"""What the steps of the road ask of a node all at once."""
