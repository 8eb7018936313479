"""Host names, SSH logins, host keys and MTU of the nodes."""
