"""Where nodes take their packages from."""
