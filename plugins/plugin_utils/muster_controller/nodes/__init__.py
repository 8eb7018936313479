"""Ways to nodes: connections, programs that run there, one question to many of them, content from one to the others."""
