"""Tools for everything that runs on nodes: commands, files, processes."""
