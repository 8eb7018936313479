"""A detached launch with restarts: its watcher on the head node, and how it gets there."""
