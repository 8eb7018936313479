"""Drift: the differences of a node from the inventory and from the last installation, with their time and author."""
