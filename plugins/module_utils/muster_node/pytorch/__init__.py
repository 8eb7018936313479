"""Inspect, build, switch and remove PyTorch environments on a node."""
