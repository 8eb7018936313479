"""The health check that a node runs by itself, from a timer, a scheduler's hook or a shell."""
