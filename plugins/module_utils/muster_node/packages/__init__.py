"""Packages on a node: apt's sources, repositories and lists, and files from peers."""
