#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Manages the names of all nodes in a node's hosts file, and prevents cloud-init from removing the names."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hosts_file
short_description: Manage the names of all cluster nodes in /etc/hosts
version_added: "0.1.0"
description:
  - Maintains a block with the name and the cluster address of all nodes, and removes these names and the machine's own
    host name from the lines of loopback addresses. All other lines are kept byte for byte.
  - If a line outside the block assigns another address to a node name, the module fails and reports the line.
  - Prevents cloud-init from overwriting the file. The same block is added to cloud-init's template, because user data
    of the cloud provider overrides all settings on the machine.
  - Finally resolves all names on the node and fails if an address is wrong.
  - With empty O(nodes), removes the block, assigns the machine's own names to C(127.0.1.1), and restores the cloud-init
    settings.
  - The action plugin of the same name reads O(nodes) and O(own) from the inventory.
author: The Muster authors
options:
  nodes:
    description: Cluster address of each node by node name, in inventory order. Read from the inventory if not set.
    type: dict
    default: {}
  own:
    description: Name of this node in the inventory. Read from the inventory if not set.
    type: str
    default: ""
  mode:
    description:
      - Mode of the module. V(manage) writes the file if it differs.
      - V(verify) only checks the resolved addresses and changes nothing.
    type: str
    choices: [manage, verify]
    default: manage
extends_documentation_fragment: [role_options.posix, action_common_attributes]
"""

EXAMPLES = r"""
- name: Manage the node names
  hosts_file:
  become: true

- name: Only check that all names resolve to the right addresses
  hosts_file:
    mode: verify
"""

RETURN = r"""
reasons:
  description: Reasons for writing the files, one sentence each.
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
