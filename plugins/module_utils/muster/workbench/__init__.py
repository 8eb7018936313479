"""JupyterLab and TensorBoard on nodes of the user's choice: what a node has for them, and whose notebook runs."""
