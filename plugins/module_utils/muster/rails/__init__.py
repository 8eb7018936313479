"""RDMA between the nodes: every adapter that NCCL would use is tried against its counterpart with verbs.

`plan` says which adapters meet, when, and with what commands; `outputs` reads what these printed; `judge` names the
adapter, the pair or the rail that is broken or slow.
"""
