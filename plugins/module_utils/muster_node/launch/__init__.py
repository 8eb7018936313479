"""What a launch does on one node, verb by verb (programs/launch.py)."""
