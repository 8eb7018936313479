#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Writes the training user's SSH files on a node. muster/network/ssh_mesh.py decides their content."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_files
short_description: Authorize SSH logins between the nodes with verified host keys
version_added: "0.1.0"
description:
  - Maintains a block in C(~/.ssh/authorized_keys), a block in C(~/.ssh/config) and the file
    C(~/.ssh/muster_known_hosts) of the user. All other lines of the first two files are kept byte for byte.
  - Reads and writes the files as the user. Home directories on a file server are therefore supported, and symbolic
    links cannot lead to files that the user cannot access.
  - If O(members) is empty, removes all entries of Muster, and then removes files that have become empty.
  - Keeps the entries of members that were not checked in this run, and removes the entries of nodes that are no longer
    members.
author: The Muster authors
options:
  address:
    description: Training address of the node.
    type: str
    required: true
  user:
    description: Training user.
    type: str
    required: true
  cluster:
    description: Name of the cluster, which is part of the comment of each line.
    type: str
    required: true
  identity:
    description: Private key file of the user.
    type: path
    required: true
  members:
    description: All nodes of the cluster, as returned by M(ssh_mesh_members).
    type: list
    elements: dict
    required: true
  mode:
    description: >-
      Mode of the module. V(manage) applies the differences. V(verify) writes nothing and fails on differences.
    type: str
    choices: [manage, verify]
    default: manage
extends_documentation_fragment: [role_options.posix, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Authorize logins between the nodes
  ssh_mesh_files:
    node: "{{ inventory_hostname }}"
    user: muster
    cluster: lab
    identity: /var/lib/muster/ssh/muster/id_ed25519
    members: "{{ members.members }}"
  become: true
"""

RETURN = r"""
strangers:
  description: Members that were not checked in this run and are unknown to this node.
  type: list
  elements: str
  returned: success
ways:
  description: Digests of all settings that affect logins from this node and to this node.
  type: dict
  returned: success, and not in check mode
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.network.ssh_mesh import BlockError
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.network.mesh_files import keep
from ansible.module_utils.muster_node.tools.result import RefusedError, one_sentence


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "cluster": {"type": "str", "required": True},
            "identity": {"type": "path", "required": True},
            "members": {"type": "list", "elements": "dict", "required": True},
            "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
        },
        supports_check_mode=True,
    )
    with one_sentence(module, refusals=(BlockError,)):
        try:
            result = keep(module.params, check=module.check_mode)
        except OSError as problem:
            raise RefusedError(f"{problem.filename}: {problem.strerror} (as {module.params['user']})") from None
    if result["strangers"]:
        module.warn(
            f"{', '.join(result['strangers'])} was not part of this run, and the other nodes do not know its key yet."
            f" Once it is reachable, run {playbook('playbooks/network.yml')} without --limit."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
