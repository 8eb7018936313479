# The work is done on the controller, by plugins/action/ddp_smoke_verdict.py. This file documents it.

DOCUMENTATION = r"""
module: ddp_smoke_verdict
short_description: Judge what the ranks of a smoke launch reported
description:
  - Compares the reports of all ranks with the plan of the launch. World size and layout of the ranks, an exact integer
    all-reduce, parameters bitwise equal on all ranks, a falling loss, and nodes that are separate machines.
  - A rank that did not report is a failure.
  - Writes C(smoke.json) and C(verdict.json) into the folder of the launch. Contacts no node.
options:
  launch:
    description: The registered result of M(torchrun_launch).
    type: dict
    required: true
  loss_ratio:
    description: The mean of the last losses must be below this part of the mean of the first ones.
    type: float
    default: 0.9
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "Does nothing, since check mode does not launch."}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Check what it computed
  ddp_smoke_verdict:
    launch: "{{ __ddp_smoke_launch }}"
    loss_ratio: 0.9
  run_once: true
"""

RETURN = r"""
verdict:
  description: "The verdict of the launch and of its result: C(status), C(summary), C(findings), C(coverage)."
  returned: always
  type: dict
smoke:
  description: What was measured, as in C(smoke.json).
  returned: always
  type: dict
"""
