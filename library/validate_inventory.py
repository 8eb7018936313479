# The work is done on the controller, by plugins/action/validate_inventory.py. This file documents it.

DOCUMENTATION = r"""
module: validate_inventory
short_description: Judge the inventory before any node is contacted
version_added: "0.1.0"
description:
  - Reads what the inventory says of the nodes in the group C(gpu_nodes), with the defaults of the role
    C(cluster) applied, and fails with every problem at once, each with its place and how to fix it.
  - Judges what was given with C(-e) or in a job file, too. There, every name that begins as those of Muster do must be
    an option; what is nearest to another one is named.
  - Runs on the controller and contacts no node.
options:
  connects:
    description:
      - Whether the play goes on to connect to the nodes.
      - If so, addresses from the ranges that are reserved for documentation are refused.
    type: bool
    default: true
  launches:
    description:
      - Whether the play goes on to a launch of the user's own program.
      - If so, what is to be launched must be named, and its files on the controller must be usable.
    type: bool
    default: false
  every_node:
    description:
      - Why the play must not leave out a node, as a sentence without its full stop. A C(--limit) is then refused.
    type: str
    default: ""
  every_task:
    description:
      - Why the play must not leave out a task, as a sentence without its full stop. Tags are then refused.
    type: str
    default: ""
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Judge the inventory
  validate_inventory:
  run_once: true

- name: Judge the inventory of a play that connects to no node
  validate_inventory:
    connects: false
  run_once: true
"""

RETURN = r"""
msg:
  description: Every problem, one sentence each.
  returned: when the inventory has problems
  type: str
  sample: |-
    The inventory has 1 problem, and no node was contacted.
    - node2: no address is given. Add its IP address as ansible_host.
"""
