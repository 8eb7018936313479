"""NVIDIA's driver on one node: what must change, in which order, and whether it works. Pure.

model: what is asked and what was seen. family: which packages are parts of the driver. plan: what differs, and what
follows from it. judge: whether it works, and the reboot. apt: what apt is asked for, and may do.
"""
