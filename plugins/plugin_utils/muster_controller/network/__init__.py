"""Host keys, first logins, the firewall, and guards for changes that could lock out the administrator."""
