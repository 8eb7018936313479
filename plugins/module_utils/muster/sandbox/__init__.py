"""The machines of the sandbox: what is to be made, changed or removed on this machine."""
