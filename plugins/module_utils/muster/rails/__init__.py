"""RDMA tests between nodes. Every adapter that NCCL would use is tested, with verbs, against its counterpart on another
node.

`plan` schedules the pairs of adapters and their commands; `outputs` parses the output; `judge` names the broken or slow
adapter, pair or rail.
"""
