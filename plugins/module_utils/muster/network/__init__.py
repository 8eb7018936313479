"""Host names, SSH logins, host keys and the MTU of the nodes."""
