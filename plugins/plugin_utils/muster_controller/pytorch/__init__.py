"""Environments of the nodes: the lock, the downloading node, and the distribution to other nodes."""
