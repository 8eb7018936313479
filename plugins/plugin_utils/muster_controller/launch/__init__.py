"""A launch from its options to its end: prepared, reserved, started, watched, stopped, and what is kept of it."""
