# The work is done on the controller, by plugins/action/inspect_verdict.py. This file documents it.

DOCUMENTATION = r"""
module: inspect_verdict
short_description: Judge the looks at all nodes, and show them as a table
version_added: "0.1.0"
description:
  - Lays what M(node_inspect) saw on each node beside what the inventory says of it, and beside the other nodes.
  - Writes C(inspect.json) into the cluster's folder of artifacts, which only its owner may read.
  - Never fails. Which nodes must not go on is returned in RV(refusals).
  - Contacts no node; use it with C(run_once).
options:
  plan:
    description: The registered result of M(inspect_plan).
    type: dict
    required: true
  looks:
    description: Name of the variable in which each node's result of M(node_inspect) is registered.
    type: str
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Judge what was seen
  inspect_verdict:
    plan: "{{ __inspect_plan }}"
    looks: __inspect_look
  register: __inspect_verdict
  run_once: true
"""

RETURN = r"""
msg:
  description: The table, what was found, and what could not be looked at.
  returned: always
  type: str
refusals:
  description: For each node on which nothing may be changed, the sentences that say why and how to fix it.
  returned: always
  type: dict
findings:
  description: Every finding.
  returned: always
  type: list
  elements: dict
status:
  description: What the findings add up to. healthy, degraded, unknown or failed.
  returned: always
  type: str
reminder:
  description: What the end of the run says once more - GPUs that the inventory does not name. Empty for none.
  returned: always
  type: str
artifacts:
  description: Folder on the controller that has C(inspect.json).
  returned: always
  type: str
"""
