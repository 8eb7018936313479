"""Tools for code that runs on nodes: commands, files, processes."""
