"""What a node says of itself for the one screen of the cluster."""
