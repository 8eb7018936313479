"""Collects evidence on a node for the diagnosis of a launch. muster/diagnosis/evidence.py defines the data shapes."""
