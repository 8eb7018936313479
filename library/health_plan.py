# The work is done on the controller, by plugins/action/health_plan.py. This file documents it.

DOCUMENTATION = r"""
module: health_plan
short_description: Read once, for all nodes, what the health checks need from the inventory
version_added: "0.1.0"
description:
  - Which nodes take part in a launch, which is the head node, and over what addresses, port and backend they meet.
  - Contacts no node; use it with C(run_once).
options:
  nodes:
    description: Only these are looked at, as if no others were to take part in a launch. Empty means all.
    type: list
    elements: str
    default: []
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
  health_plan:
  register: __plan
  run_once: true
"""

RETURN = r"""
requests:
  description: >-
    The training address, interface and port of each node, and what its firewall is to let in, in the order of the
    inventory. A quarantined node has none.
  returned: always
  type: dict
sources:
  description: What the inventory says of where each node takes packages from.
  returned: always
  type: dict
quarantined:
  description: Names of the nodes that are left out of every launch.
  returned: always
  type: list
  elements: str
participants:
  description: Names of the nodes of a launch, in the order of their node ranks.
  returned: always
  type: list
  elements: str
head:
  description: Name of the node with node rank 0.
  returned: always
  type: str
backend:
  description: gloo or nccl.
  returned: always
  type: str
port:
  description: Port of the rendezvous on the head node.
  returned: always
  type: int
launch_ports:
  description: Range of ports that the firewall lets nodes reach each other on for launches.
  returned: always
  type: str
folder:
  description: Folder on the controller that has the cluster's artifacts.
  returned: always
  type: str
"""
