"""Who is at work on a node, and which environment it has."""
