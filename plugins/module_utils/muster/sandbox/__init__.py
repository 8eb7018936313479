"""Containers of the sandbox: what to create, change or remove on this machine."""
