"""Launches: the plan, preflight checks, monitoring, the outcome and its cause."""
