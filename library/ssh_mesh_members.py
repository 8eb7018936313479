# The work is done on the controller, by plugins/action/ssh_mesh_members.py. This file documents it.

DOCUMENTATION = r"""
module: ssh_mesh_members
short_description: Puts together what every node shall know of every other
version_added: "0.1.0"
description:
  - Takes what M(ssh_mesh_key) found on each node of the group C(gpu_nodes) in this run, and the nodes' addresses from
    the inventory. Done once on the controller, because a template over 200 nodes would be worked out 200 times.
  - Runs on the controller and contacts no node.
options:
  looks:
    description: Name of the variable in which the results of M(ssh_mesh_key) were registered.
    type: str
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Put together what every node shall know
  ssh_mesh_members:
    looks: look
  run_once: true
  register: members
"""

RETURN = r"""
members:
  description: Every node, with its address, its keys, and whether it was looked at in this run.
  type: list
  elements: dict
  returned: success
refusals:
  description: Nodes whose key is another node's as well, with what is wrong and what to type.
  type: dict
  returned: success
"""
