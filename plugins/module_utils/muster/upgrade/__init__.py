"""Plan upgrades of PyTorch, driver or kernel on nodes in use: changes, order, trial launches and rollback."""
