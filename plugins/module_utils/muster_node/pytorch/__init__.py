"""PyTorch environments on a node: inspect, build, switch and remove them."""
