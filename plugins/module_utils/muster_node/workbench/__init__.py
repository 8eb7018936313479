"""What a node has for notebooks, and changing it (library/workbench.py); and somebody's own notebook."""
