"""Firewall of a node: the requested and observed state, the plan of changes, and the checks of both."""
