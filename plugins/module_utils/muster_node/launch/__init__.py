"""The parts of a launch on a node, by verb (programs/launch.py)."""
