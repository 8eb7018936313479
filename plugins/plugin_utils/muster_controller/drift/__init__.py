"""The present state of nodes, and the changes that the steps would make."""
