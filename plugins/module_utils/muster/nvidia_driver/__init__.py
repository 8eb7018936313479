"""Plan changes of the NVIDIA driver on one node, and evaluate whether the driver works. Pure.

model: request, state and plan. family: packages of the driver. plan: differences and steps. judge: function of the
driver, and reboots. apt: requests to apt and their limits.
"""
