"""Host keys, first logins, the firewall, and guarded changes that could cut off the administrator."""
