#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Returns the SSH keys and settings of a node that other nodes need, and creates the training user's key if missing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_key
short_description: Manage the SSH key of the training user and report the host keys of a node
version_added: "0.1.0"
description:
  - Generates an ed25519 key if there is none. The private key never leaves the node and is not part of a result. Its
    file is outside the home directory, because home directories are often shared between nodes.
  - Checks the host keys of the node, the port of sshd, and whether sshd allows logins of the user.
author: The Muster authors
options:
  address:
    description: Address that peers use to reach the node.
    type: str
    required: true
  user:
    description: Training user.
    type: str
    required: true
  identity:
    description: Private key file. The file is owned by the user and its folder by root.
    type: path
    required: true
  comment:
    description: Comment of the key.
    type: str
    default: ""
  mode:
    description: >-
      Mode of the module. V(manage) applies the differences. V(verify) changes nothing and fails on differences.
    type: str
    choices: [manage, verify]
    default: manage
  sshd_path:
    description: sshd configuration file that the role manages.
    type: path
    default: ""
  sshd_settings:
    description: Content of O(sshd_path). If empty, sshd is not changed.
    type: str
    default: ""
  rotate:
    description: Whether to replace an existing key.
    type: bool
    default: false
extends_documentation_fragment: [role_options.posix, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Check the user, the key and sshd
  ssh_mesh_key:
    node: "{{ inventory_hostname }}"
    address: "{{ cluster_address }}"
    user: muster
    identity: /var/lib/muster/ssh/muster/id_ed25519
  become: true
  register: look
"""

RETURN = r"""
key: {description: Public key. Empty in check mode if the key does not exist yet., type: str, returned: success}
host_keys: {description: Public host keys of the node's sshd., type: list, elements: str, returned: success}
port: {description: Port of sshd., type: int, returned: success}
hostname: {description: Host name of the node., type: str, returned: success}
sshd: {description: Required change of the sshd configuration. Empty if there is none., type: str, returned: success}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster_node.network.mesh_key import provide, warnings
from ansible.module_utils.muster_node.tools.result import one_sentence

SPEC = {
    "node": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "user": {"type": "str", "required": True},
    "identity": {"type": "path", "required": True},
    "comment": {"type": "str", "default": ""},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
    "sshd_path": {"type": "path", "default": ""},
    "sshd_settings": {"type": "str", "default": ""},
    "rotate": {"type": "bool", "default": False},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    # ssh-keygen creates the key with mode 0600 in any case. The folders are accessible to all users.
    os.umask(0o022)
    with one_sentence(module):
        result = provide(module.params, check=module.check_mode)
    for sentence in warnings(module.params, result.pop("overridden")):
        module.warn(sentence)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
