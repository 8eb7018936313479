"""The inventory of this run in its own files: where values stand, and how they are changed."""
