"""What of a node differs from what the inventory wants and from what was last installed, since when, and by whom."""
