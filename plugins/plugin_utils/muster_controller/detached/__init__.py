"""A detached launch with restarts: its watcher on the head node, and the start of the watcher."""
