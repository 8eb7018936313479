"""PyTorch environments: the request, the state of a node, and the lock that lists every wheel with its hash."""
