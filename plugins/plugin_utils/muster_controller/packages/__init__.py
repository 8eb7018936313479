"""Package sources of nodes."""
