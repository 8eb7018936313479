"""Nodes that are to become members: who was named, whether that can be, how far each has come, what is said of it."""
