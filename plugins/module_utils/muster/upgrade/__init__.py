"""Plan upgrades of PyTorch, the driver or the kernel on nodes in use: changes, order, trial launches and rollback."""
