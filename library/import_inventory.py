# The work is done on the controller, by plugins/action/import_inventory.py. This file documents it.

DOCUMENTATION = r"""
module: import_inventory
short_description: Write a new inventory from a list of nodes
version_added: "0.2.0"
description:
  - Takes the nodes from one of O(node), O(nodes), O(nodes_file) and O(ssh_config), and looks their addresses up where
    only names are given.
  - Writes C(inventory/NAME/hosts.yml), and copies the options of C(inventory/lab) beside it. What is there already is
    never written over.
  - Says all that is wrong with the list at once, and what is to be done next.
  - Runs on the controller, and contacts no node.
options:
  name:
    description: The name of the new inventory, which is a folder in C(inventory/).
    type: str
    default: ""
  node:
    description:
      - Names, as a list or as one text such as gpu[01-04],head. With O(ssh_config), names and patterns of its hosts.
    type: raw
    default: ""
  address:
    description: The address of each, in the same order.
    type: raw
    default: ""
  host_key:
    description: The fingerprint of the host key of each, in the same order.
    type: raw
    default: ""
  gpus:
    description: Number of GPUs of each, to train on.
    type: int
    default: 0
  nodes:
    description:
      - Names, and of each its address, or a mapping of address, host_key, gpus, user, port and training_address.
    type: dict
    default: {}
  nodes_file:
    description: A file on the controller with a node in each line, as C(name address [slots=N]) or as C(address).
    type: str
    default: ""
  ssh_config:
    description:
      - An ssh config on the controller; C(ssh -G) says how each of its hosts is reached.
      - One that has C(Match exec) or C(Include) is refused, but for the user's own C(~/.ssh/config).
    type: str
    default: ""
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Says what it would write.}
  diff_mode: {support: full}
  idempotent: {support: full, description: A second run changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Write the inventory
  import_inventory:
    name: rack2
    ssh_config: ~/.ssh/config
    node: gpu*
"""

RETURN = r"""
outcome: {description: "What came of it, in a sentence.", returned: success, type: str}
"""
