"""Gathers evidence on a node for the diagnosis of a launch; for the shapes see muster/diagnosis/evidence.py."""
