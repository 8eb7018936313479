"""A launch: its plan, what is looked at before it, the watch over it, how it ended and why."""
