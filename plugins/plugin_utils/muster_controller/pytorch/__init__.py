"""Environments of the nodes: what is locked, who downloads, how it comes to the others."""
