"""Inspect nodes before setup: collect facts, and find problems on single nodes and between nodes."""
