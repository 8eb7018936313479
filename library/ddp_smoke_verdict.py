# The work is done on the controller, by plugins/action/ddp_smoke_verdict.py. This file documents it.

DOCUMENTATION = r"""
module: ddp_smoke_verdict
short_description: Judge what the ranks of a smoke launch reported
version_added: "0.1.0"
description:
  - Compares the reports of all ranks with the plan of the launch. World size and layout of the ranks, an exact integer
    all-reduce, parameters bitwise equal on all ranks, a falling loss, and nodes that are separate machines.
  - A rank that did not report is a failure.
  - Compares what was measured with the accepted state of the cluster, C(acceptance.json) beside its runs, which the
    first healthy run begins.
  - Writes C(smoke.json) and C(verdict.json) into the folder of the launch. Contacts no node.
options:
  launch:
    description: The registered result of M(torchrun_launch).
    type: dict
    required: true
  payload:
    description:
      - Folder of the payload on the controller, whose table says which stages there are. Beside it is C(gpu_rates.yml).
    type: path
    required: true
  mode:
    description: The mode in which it ran.
    type: str
    choices: [quick, full, soak]
    default: quick
  stages:
    description: The stages that it was to do; none means all of its mode.
    type: list
    elements: str
    default: []
  loss_ratio:
    description: The mean of the last losses must be below this part of the mean of the first ones.
    type: float
    default: 0.9
  accept:
    description:
      - Make what was measured the accepted state of the cluster.
      - It is an error where anything in the run is not healthy.
    type: bool
    default: false
  regression:
    description: What it is when a value falls behind the accepted state by more than its bound.
    type: str
    choices: [warn, fail]
    default: warn
  busbw_floor:
    description: All-reduce busbw across nodes below this is a failure, in GB/s; 0 means none.
    type: float
    default: 0
  scaling_floor:
    description: The least efficiency of all ranks together, against as many times one rank alone; 0 for none.
    type: float
    default: 0.0
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
    payload: "{{ role_path }}/files/acceptance"
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
