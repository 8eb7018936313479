"""Onboarding of new nodes: the request, its validation, the state of each node, and the outcome."""
