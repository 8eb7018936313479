"""JupyterLab and TensorBoard on selected nodes: the setup of a node, and notebooks of users."""
