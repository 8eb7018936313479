# The work is done by plugins/action/inspect_look.py and, on nodes, by the program role_looks. This file documents it.

DOCUMENTATION = r"""
module: inspect_look
short_description: Looks at all nodes as node_inspect does, in one round trip
version_added: "0.2.0"
description:
  - Looks at all nodes of the play side by side. On the road it takes the looks of the steps to come along, as
    M(role_looks) does, and keeps them in the folder of the run.
  - A node that gave no answer is not in RV(nodes); M(node_inspect) then asks it alone, and says why. Its result is
    to be registered under the same name with C(_alone) behind it.
options:
  plan:
    description: What M(inspect_plan) returned. Needed where everything is looked at.
    type: dict
    default: {}
  only:
    description: Subjects, as of M(node_inspect). They are taken from the whole look of this run where that still holds.
    type: list
    elements: str
    default: []
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Tries no login and remembers nothing; else the same.}
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Look at all nodes
  inspect_look: {plan: "{{ __plan }}"}
  register: __look
  run_once: true

- name: Ask a node alone that did not answer
  node_inspect:
    user: muster
  register: __look_alone
  when: inventory_hostname not in __look.nodes
"""

RETURN = r"""
nodes:
  description: Of each node that answered, its facts, as M(node_inspect) returns them.
  type: dict
  returned: always
"""
