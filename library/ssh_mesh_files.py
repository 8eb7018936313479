#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Writes the training user's ssh files on a node. What they hold is decided in muster/network/ssh_mesh.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_files
short_description: Lets the training user log in between the nodes, with checked host keys
version_added: "0.1.0"
description:
  - Keeps one block in the user's C(~/.ssh/authorized_keys) and one in C(~/.ssh/config), and the whole file
    C(~/.ssh/muster_known_hosts). Every other line of the first two stays as it is, byte for byte.
  - The files are read and written as the user, so that homes on a file server work, and links in them lead nowhere
    that the user could not reach.
  - Without any O(members) nothing of ours stays in the three files, and one that holds nothing else is removed.
  - Lines of a member that was not looked at in this run are kept. Those of a node that is no member any more fall away.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  address:
    description: The node's own address in the training network.
    type: str
    required: true
  user:
    description: The training user.
    type: str
    required: true
  cluster:
    description: Name of the cluster. It is part of the comment of every line.
    type: str
    required: true
  identity:
    description: File of the user's private key.
    type: path
    required: true
  members:
    description: Every node of the cluster, as M(ssh_mesh_members) returns them.
    type: list
    elements: dict
    required: true
  mode:
    description: With V(verify) nothing is written, and the node fails with what differs.
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
- name: Know the peers, and let them in
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
  description: Members that were not looked at in this run, and that this node does not know from an earlier one.
  type: list
  elements: str
  returned: success
ways:
  description: A digest of all that logins from here, and of all that logins on this node go by.
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
            raise RefusedError(f"{problem.filename}: {problem.strerror}, as {module.params['user']}") from None
    if result["strangers"]:
        module.warn(
            f"{', '.join(result['strangers'])} took no part in this run, and the other nodes do not know its key yet:"
            f" run {playbook('playbooks/network.yml')} again when it answers, without --limit."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
