# The work is done on the controller, by plugins/action/health_verdict.py. This file documents it.

DOCUMENTATION = r"""
module: health_verdict
short_description: Add up what the health checks found on every node and between them
version_added: "0.1.0"
description:
  - Puts together the looks of M(nccl_health), the links of M(net_probe), the rails of M(rdma_rails) and what must be
    the same on every node, where the majority is right and the odd node is named. Without a majority, as with two
    nodes, all are shown.
  - Keeps C(health/<node>.json), C(network.json), C(rails.json) where there are rails, and the run's
    C(verdict.json) on the controller.
  - Never fails. What stands against a launch is returned in RV(refusal).
  - Contacts no node; use it with C(run_once).
options:
  plan:
    description: The registered result of M(health_plan).
    type: dict
    required: true
  looks:
    description: Name of the variable in which each node's result of M(nccl_health) is registered.
    type: str
    required: true
  network:
    description: The registered result of M(net_probe).
    type: dict
    required: true
  rails:
    description: The registered result of M(rdma_rails).
    type: dict
    default: {}
  gate:
    description: With C(warn), and in check mode, a failed check counts as a warning and refuses nothing.
    type: str
    choices: [fail, warn]
    default: fail
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "A failed check is a warning: earlier steps fixed nothing."}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Add up what was found
  health_verdict:
    plan: "{{ __plan }}"
    looks: __look
    network: "{{ __network }}"
  register: __verdict
  run_once: true
"""

RETURN = r"""
msg:
  description: What was found, the worst first, and what could not be looked at.
  returned: always
  type: str
verdict:
  description: The verdict of the run so far.
  returned: always
  type: dict
refusal:
  description: One sentence for each cause that stands against a launch, with what fixes it; empty when none does.
  returned: always
  type: str
metrics:
  description: What node_exporter's textfile collector may be given, by node.
  returned: always
  type: dict
artifacts:
  description: Folder on the controller that has what was found.
  returned: always
  type: str
"""
