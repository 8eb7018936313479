"""The ssh mesh on a node: its key, and the sshd that lets it in."""
