"""People who launch as themselves: what their accounts need on a node, what must change there, and what is undone."""
