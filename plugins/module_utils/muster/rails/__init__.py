"""RDMA tests between nodes: every adapter that NCCL would use is tested against its counterpart with verbs.

`plan` schedules the pairs of adapters and their commands; `outputs` parses the output; `judge` names the broken or slow
adapter, pair or rail.
"""
