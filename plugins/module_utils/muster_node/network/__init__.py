"""Network setup on a node: SSH mesh, sshd and the hosts file."""
