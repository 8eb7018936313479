"""Detached launches with restarts: the watcher on the head node, and the code that starts the watcher."""
