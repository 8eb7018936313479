"""The content of the status screen: nodes, GPUs and launches now, and the results of earlier runs.

Test cases contain whole screens: tests/unit/status/cases/screen.
"""
