# The work is done by plugins/action/claim_nodes.py and, on nodes, by the program claim. This file documents it.

DOCUMENTATION = r"""
module: claim_nodes
short_description: Lets one run at a time change a node
version_added: "0.2.0"
description:
  - Claims all nodes of the play for this run, those that it has not claimed yet, and goes on only when it has them all.
    When another administrator's run has one, it says which, whose it is and since when; nothing is changed then.
  - The claims end with C(ansible-playbook), however that ends. Where the controller itself is gone, they end after a
    minute in which they were not renewed.
  - A node that does not answer is left to the tasks that come behind.
  - Who takes and frees a claim is in the node's journal, C(journalctl -t muster).
options:
  take_over:
    description: Whether to take claims over that another run has.
    type: bool
    default: false
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "Claims nothing, and warns of nodes that another run has claimed."}
  diff_mode: {support: none, description: A claim is no change.}
  idempotent: {support: full, description: A run keeps the claims that it has.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Claim the nodes
  claim_nodes:
    take_over: "{{ cluster_take_over }}"
  become: true
  run_once: true
"""

RETURN = r"""
claimed:
  description: The nodes that were asked. Not those that this run had claimed before.
  type: list
  elements: str
  returned: not in check mode
"""
