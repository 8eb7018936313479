"""Resolve compatible versions of driver, CUDA, NCCL, cuDNN and PyTorch for a set of nodes, and their packages.

`resolve.resolve` takes the table of roles/gpu_stack/files/versions.yml, the request of the inventory and the facts of
every node. It returns one stack for all nodes, or the reasons for a rejection with the closest alternative.
"""
