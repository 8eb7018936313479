#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keeps the nodes' names in the hosts file of a node, and cloud-init from taking them out again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hosts_file
short_description: The names of the cluster's nodes in a node's hosts file
version_added: "0.1.0"
description:
  - Keeps a block with the name and the cluster address of every node, and takes these names and the machine's own
    hostname off the lines of loopback addresses. Every other line is kept byte for byte.
  - A line outside the block that gives a node's name another address is not changed. The module fails and names it.
  - Where cloud-init is, it is made to leave the file alone. Its template gets the same block, because the user data
    of a provider outranks every setting on the machine.
  - Afterwards the node's resolver is asked for every name, and the module fails when an answer is wrong.
  - With no O(nodes) at all, the block is taken out, the machine's own names go back to C(127.0.1.1), and cloud-init is
    left to itself.
  - An action plugin of the same name fills in O(nodes) and O(own) from the inventory.
author: The Muster authors
options:
  nodes:
    description:
      - The nodes in the order of the inventory, each name with its address. Filled in from the inventory when it is
        not given.
    type: dict
    default: {}
  own:
    description: Name of this node in the inventory. Filled in from the inventory when it is not given.
    type: str
    default: ""
  mode:
    description:
      - With V(manage) the file is written when it differs.
      - With V(verify) only the resolver's answers are judged, and nothing is changed.
    type: str
    choices: [manage, verify]
    default: manage
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Keep the nodes' names
  hosts_file:
  become: true

- name: Only look whether every name leads to the right address
  hosts_file:
    mode: verify
"""

RETURN = r"""
reasons:
  description: Why a file was written, or would be, one sentence each.
  returned: success
  type: list
  elements: str
  sample: ["line 2 gives node1 the loopback address 127.0.1.1"]
"""

import socket

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.network.hosts_file import HostsRequest
from ansible.module_utils.muster_node.network.names import forget, provide
from ansible.module_utils.muster_node.tools.result import one_sentence


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "dict", "default": {}},
            "own": {"type": "str", "default": ""},
            "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
        },
        supports_check_mode=True,
    )
    cluster = HostsRequest(module.params["nodes"], module.params["own"], socket.gethostname())
    with one_sentence(module, node="own"):
        check = module.check_mode
        known = cluster.addresses
        module.exit_json(**(provide(cluster, module.params["mode"], check=check) if known else forget(check=check)))


if __name__ == "__main__":
    main()
