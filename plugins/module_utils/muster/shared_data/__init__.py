"""Shared folders of a file server on every node: validation of the request, and the plan."""
