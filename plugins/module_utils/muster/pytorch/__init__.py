"""The environment of PyTorch: what is requested of it, what is there, and the lock that holds every wheel."""
