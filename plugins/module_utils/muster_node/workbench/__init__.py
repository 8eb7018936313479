"""The notebook setup of a node (library/workbench.py), and users' notebooks."""
