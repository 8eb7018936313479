"""The environment of PyTorch on a node: what is built, looked at, switched and removed there."""
