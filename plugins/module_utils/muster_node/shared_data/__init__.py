"""Shared folders on this node: probed without blocking on a server, and mounted."""
