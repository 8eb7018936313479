"""Files that a node fetches from its peers."""
