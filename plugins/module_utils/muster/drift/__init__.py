"""Drift: how a node differs from the inventory and from its last installation, and when and by whom it was changed."""
