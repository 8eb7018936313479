# The work is done on the controller, by plugins/action/onboard_health.py. This file documents it.

DOCUMENTATION = r"""
module: onboard_health
short_description: Judge the health of a new node by itself
version_added: "0.2.0"
description:
  - Takes what M(nccl_health) saw on the node, and what M(net_probe) found of its links.
  - A clock that is not the others' counts against it, which a launch would put up with.
  - Fails when a launch on it would.
options:
  plan:
    description: What M(health_plan) returned.
    type: dict
    required: true
  looks:
    description: The name under which the looks are registered.
    type: str
    required: true
  network:
    description: What M(net_probe) returned; nothing where there is no other node.
    type: dict
    default: {}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "The same: it changes nothing on a node."}
  diff_mode: {support: none, description: It changes nothing.}
  platform: {support: full, platforms: posix}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Judge each node by itself
  onboard_health:
    plan: "{{ __health_plan }}"
    looks: __health_look
"""

RETURN = r"""
findings: {description: What was found., type: list, elements: dict, returned: always}
"""
