# The work is done by plugins/action/quarantine_nodes.py and, on nodes, by the program members. This file documents it.

DOCUMENTATION = r"""
module: quarantine_nodes
short_description: Leave nodes out of every launch, with a reason, or let them take part again
version_added: "0.2.0"
description:
  - Writes C(cluster_quarantined) with reason, date and name into the inventory, or takes it out. A YAML inventory keeps
    its comments, order and style; of another one the lines are printed that somebody has to write.
  - The inventory decides. A node that answers is given a copy, by which a launch is refused that follows an inventory
    which says nothing of it, such as an older copy of it.
  - A launch that runs on a node is named, and left alone.
  - Use it with C(run_once). Nodes are contacted by the connections that the inventory gives them.
options:
  nodes:
    description: Names of nodes.
    type: list
    elements: str
    default: []
  reason:
    description: Why they are left out. Needed unless O(release) is set.
    type: str
    default: ""
  release:
    description: Whether they take part again.
    type: bool
    default: false
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Shows what the inventory would be.}
  diff_mode: {support: full, description: Shows the inventory's file before and after.}
  idempotent: {support: full, description: A node that is quarantined for the same reason stays so.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Leave a node out
  quarantine_nodes:
    nodes: [node7]
    reason: a fan does not turn
  become: true
  run_once: true

- name: Let it take part again
  quarantine_nodes:
    nodes: [node7]
    release: true
  become: true
  run_once: true
"""

RETURN = r"""
outcome:
  description: What came of it, in one sentence.
  returned: success
  type: str
silent:
  description: By node that did not answer, why.
  returned: success
  type: dict
running:
  description: Sentences on launches that run on these nodes.
  returned: success
  type: list
  elements: str
"""
