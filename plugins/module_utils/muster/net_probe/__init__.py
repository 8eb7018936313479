"""Probe the network between the nodes, and find the nodes that cause problems.

`schedule` assigns the pairs for throughput measurements. `links` combines the results of all nodes. `blame` finds the
node that explains several bad links. `reach`, `quality` and `names` create findings, which `judge` combines.
"""
