"""What runs on nodes: tools, looks that modules take with them, and programs that are handed to another Python."""
