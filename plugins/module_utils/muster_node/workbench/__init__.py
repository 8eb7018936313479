"""Set up notebooks on a node (library/workbench.py), and start and stop users' notebooks."""
