# The work is done by plugins/action/role_looks.py and, on nodes, by the program role_looks. This file documents it.

DOCUMENTATION = r"""
module: role_looks
short_description: Looks once at all nodes, and says to which of them each role of a step has to come
version_added: "0.2.0"
description:
  - Takes the first look of each role of the step on all nodes of the play, in one round trip, and judges it as the
    roles do. On the road it looks for the steps behind this one as well, and keeps that in the folder of the run.
  - A role is excused from a node where nothing differs. Where the look came to nothing, or cannot be taken so, the role
    comes and looks by itself.
  - A node to which a role comes is looked at anew before the next step.
  - With C(cluster_full) every role comes to every node, whatever was seen, and what was remembered is compared.
options:
  step:
    description: Tag of the step.
    type: str
    choices: [baseline, network, pytorch]
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Tries no login and remembers nothing; else the same.}
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Look which roles have anything to do
  role_looks:
    step: baseline
  become: true
  run_once: true
  register: __looks

- name: Leave the nodes on which nothing differs
  ansible.builtin.meta: end_host
  when: inventory_hostname in __looks.content
"""

RETURN = r"""
content:
  description: The nodes to which no role of the step comes.
  type: list
  elements: str
  returned: always
needed:
  description: >-
    Of each role of the step, the nodes to which it comes. C(installed_record), at the end of C(pytorch), counts as one.
  type: dict
  returned: always
why:
  description: Of each role, and of each node to which it comes, what differs there.
  type: dict
  returned: always
looked_at:
  description: The nodes that were asked for it. Of the others an earlier look of this run still holds.
  type: list
  elements: str
  returned: always
"""
