"""The acceptance test: what its ranks reported, judged on the controller against plan, bounds and the cluster's past.

`reports` reads what the ranks said. Then one file for each subject, under the name of its stage in the payload
(roles/ddp_smoke/files/acceptance): each has CHECKS and `judge(reports)`. `judge` puts them together.
"""
