"""What the one screen of a cluster says: its nodes, GPUs and launches now, and what was kept of earlier runs.

Case files hold whole screens: tests/unit/status/cases/screen.
"""
