"""Names, ssh and host keys: what the nodes and the controller must know of each other."""
