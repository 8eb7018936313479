"""Probe shared folders on this node without blocking on a server, and mount them."""
