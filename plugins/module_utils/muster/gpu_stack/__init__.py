"""Which driver, CUDA, NCCL, cuDNN and PyTorch fit each other on some nodes, and what to install for them.

`resolve.resolve` takes the table of roles/gpu_stack/files/versions.yml, the request of the inventory and what is known
of every node, and returns one stack for all of them, or the reasons why there is none and the nearest that there is.
"""
