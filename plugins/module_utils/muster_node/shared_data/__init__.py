"""Folders of a file server on this node: looked at without waiting for a server, and mounted."""
