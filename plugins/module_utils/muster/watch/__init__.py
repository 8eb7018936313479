"""The health check that a node runs by itself: its answer, history and metrics."""
