"""Evaluate the ranks' reports of an acceptance test on the controller. The reports are compared with the plan, with
bounds and with earlier runs.

`reports` reads the ranks' reports. Each subject has one file, named after its stage in the payload
(roles/ddp_smoke/files/acceptance), with CHECKS and `judge(reports)`. `judge` combines them.
"""
