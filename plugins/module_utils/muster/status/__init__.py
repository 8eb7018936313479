"""The content of the status screen: the present nodes, GPUs and launches, and the results of earlier runs.

The test cases contain whole screens: tests/unit/status/cases/screen.
"""
