"""What is done about packages on a node: apt's sources, repositories and lists, and files that come from peers."""
