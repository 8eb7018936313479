"""Host keys, first log-ins, the firewall, and changes that could cut the administrator off."""
