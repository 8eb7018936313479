"""Access to nodes: connections, programs that run on nodes, requests to many nodes, and distribution between nodes."""
