"""Access to nodes: connections, programs that run there, requests to many nodes, and distribution between nodes."""
