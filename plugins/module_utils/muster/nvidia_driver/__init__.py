"""Plan changes of the NVIDIA driver on one node, and check whether the driver works. Pure functions.

model: request, state and plan. family: classification of the driver's packages. plan: differences and steps. judge:
whether the driver works, and whether a reboot is needed. apt: requests to apt and checks of apt's answers.
"""
