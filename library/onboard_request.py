# The work is done on the controller, by plugins/action/onboard_request.py. This file documents it.

DOCUMENTATION = r"""
module: onboard_request
short_description: Read which nodes are to be onboarded, and judge that before any of them is touched
version_added: "0.2.0"
description:
  - Takes the nodes from one of O(node), O(nodes), O(nodes_file) and O(ssh_config), and looks their addresses up where
    only names are given.
  - Says all that is wrong at once - with the request, and with the inventory as it would be with these nodes.
  - A node that is a member already is no mistake, and is left out. One whose onboarding was not finished goes on.
  - Runs on the controller, and contacts no node.
options:
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
  check_mode: {support: full, description: "The same: it changes nothing."}
  diff_mode: {support: none, description: It changes nothing.}
  platform: {support: full, platforms: posix}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Read which nodes are to be onboarded
  onboard_request:
    node: gpu[01-04]
    address: 10.0.0.[11-14]
"""

RETURN = r"""
nodes:
  description: Those that are no members yet, each with its name and the variables that the inventory is to have.
  type: list
  elements: dict
  returned: success
  sample: [{name: node9, variables: {ansible_host: 10.0.0.9}}]
onboarding: {description: "How far each of them has come, for the end of the run.", type: dict, returned: success}
"""
