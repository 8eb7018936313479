"""Resolve compatible versions of driver, CUDA, NCCL, cuDNN and PyTorch for a set of nodes, and their packages.

`resolve.resolve` takes the table in roles/gpu_stack/files/versions.yml, the request from the inventory and the facts
about every node. It returns one stack for all nodes, or the reasons why there is none and the closest alternative.
"""
