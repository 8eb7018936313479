"""One inspection of each node for all roles of a run."""
