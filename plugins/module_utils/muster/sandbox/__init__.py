"""The sandbox: which containers are created, changed or removed on this machine."""
