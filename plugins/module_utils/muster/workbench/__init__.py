"""JupyterLab and TensorBoard on selected nodes: the setup of a node, and the notebooks of users."""
