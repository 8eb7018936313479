"""One look at each node for all roles of a run."""
