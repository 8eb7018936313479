"""Control upgrades of nodes in use."""
