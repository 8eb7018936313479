"""Onboarding of new nodes: parsing and validation of the request, the state of each node, and the outcome."""
