"""Machines of the sandbox, from nothing."""
