"""A folder of data to all nodes, without a file server."""
