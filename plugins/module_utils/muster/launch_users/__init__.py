"""User launches on a node: what the accounts need, the changes that provide it, and how to revert the changes."""
