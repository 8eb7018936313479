"""An upgrade of nodes that are in use: who changes when."""
