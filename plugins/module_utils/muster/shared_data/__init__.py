"""Folders of a file server on every node: what may be requested, and what is to be done for it."""
