"""The current state of nodes, and the changes that the steps of site.yml would make."""
