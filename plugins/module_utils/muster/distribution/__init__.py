"""Distribution of content to many nodes: the transfer order, and the answers of nodes."""
