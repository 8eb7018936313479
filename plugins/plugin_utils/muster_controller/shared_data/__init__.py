"""Copies a data folder to all nodes, without a file server."""
