"""User launches on a node: what the accounts need, the changes, and their reversal."""
