"""What may come in on a node: the model and what was seen, the plan of the rules, and their judge."""
