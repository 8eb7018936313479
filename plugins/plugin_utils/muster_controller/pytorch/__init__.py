"""Environments of the nodes: the lock, the choice of the node that downloads, and the distribution to other nodes."""
