"""Folders of a file server that are mounted on every node: validation of the request, and the plan."""
