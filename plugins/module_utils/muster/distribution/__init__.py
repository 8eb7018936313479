"""Distribution of content to many nodes: the transfer order and the validation of the nodes' answers."""
