"""Set up a node for launch users (library/launch_users.py)."""
