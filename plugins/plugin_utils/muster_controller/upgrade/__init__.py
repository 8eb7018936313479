"""The controller's part of upgrades of nodes in use."""
