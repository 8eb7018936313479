"""Content for many nodes: who hands it to whom, and what nodes say of it."""
