"""Launches: planning, preflight checks, monitoring, the outcome and its cause."""
