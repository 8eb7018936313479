"""Launches on a node: the implementation of the verbs in programs/launch.py."""
