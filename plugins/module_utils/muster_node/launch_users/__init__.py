"""What a node has for people who launch as themselves, and changing it (library/launch_users.py)."""
