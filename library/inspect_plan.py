# The work is done on the controller, by plugins/action/inspect_plan.py. This file documents it.

DOCUMENTATION = r"""
module: inspect_plan
short_description: Read once, for all nodes, what a look at them needs from the inventory
version_added: "0.1.0"
description:
  - Every node is asked for its way to every other. Read on each node's behalf, the addresses of 200 nodes would be
    worked out 40000 times.
  - Contacts no node; use it with C(run_once).
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Read what the inventory says
  inspect_plan:
  register: __inspect_plan
  run_once: true
"""

RETURN = r"""
requests:
  description: The variables of each node that a look is judged by, defaults applied.
  returned: always
  type: dict
peers:
  description: The training addresses of all nodes.
  returned: always
  type: list
  elements: str
writes:
  description: The folders under which Muster writes, by node.
  returned: always
  type: dict
prefixes:
  description: The environments that the inventory names by their paths, by node.
  returned: always
  type: dict
platforms:
  description: The supported versions of each distribution.
  returned: always
  type: dict
"""
