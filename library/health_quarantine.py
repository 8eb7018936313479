# The work is done on the controller, by plugins/action/health_quarantine.py. This file documents it.

DOCUMENTATION = r"""
module: health_quarantine
short_description: Quarantine the node that has a hard fault of its own
version_added: "0.2.0"
description:
  - Acts on a fail from a short list of faults of hardware, with the reasons in C(muster/members/by_itself.py), and on
    nothing else. What is unknown, a warning, or between two nodes never acts.
  - Quarantines one node, and no second one until a person has confirmed the first with C(playbooks/quarantine.yml), or
    ended its quarantine with C(playbooks/release.yml). It never takes the last node that takes part in launches.
  - Writes the inventory as M(quarantine_nodes) does; of one that is not Muster's to edit the lines are printed.
  - Use it with C(run_once).
options:
  findings:
    description: The findings of the verdict on the cluster's health.
    type: list
    elements: dict
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Shows what the inventory would be.}
  diff_mode: {support: full, description: Shows the inventory's file before and after.}
  idempotent: {support: full, description: A node in quarantine is not looked at again.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Quarantine the node that has a hard fault of its own
  health_quarantine:
    findings: "{{ __health_verdict.verdict.findings }}"
  become: true
  run_once: true
"""

RETURN = r"""
quarantined:
  description: The node, or nothing.
  returned: success
  type: str
"""
