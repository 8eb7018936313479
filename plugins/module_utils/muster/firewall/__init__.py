"""The firewall of a node: its requested and observed state, the plan of changes, and checks of the observed and planned
rules.
"""
