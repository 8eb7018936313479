#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Looks at what a node's peers must know of it, and makes the training user's key where there is none."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_key
short_description: The training user's ssh key of a node, and what its peers must know to trust the node
version_added: "0.1.0"
description:
  - Makes an ed25519 key on the node where there is none. The private key stays there - it is in no result, and its file
    lies outside of home, because homes are often shared between nodes.
  - Looks at the node's host keys, at the port of its sshd, and at whether sshd would let the user in.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory.
    type: str
    required: true
  address:
    description: Address at which its peers reach it.
    type: str
    required: true
  user:
    description: The training user.
    type: str
    required: true
  identity:
    description: File of the private key. It belongs to the user, and its folder to root.
    type: path
    required: true
  comment:
    description: Comment of the key.
    type: str
    default: ""
  mode:
    description: With V(verify) nothing is made or fixed, and the node fails instead.
    type: str
    choices: [manage, verify]
    default: manage
  sshd_path:
    description: File of settings of sshd that the role keeps.
    type: path
    default: ""
  sshd_settings:
    description: What that file shall hold. Empty means that sshd is left alone.
    type: str
    default: ""
  rotate:
    description: Whether to make a new key although there is one.
    type: bool
    default: false
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Look at the user, its key and sshd
  ssh_mesh_key:
    node: "{{ inventory_hostname }}"
    address: "{{ cluster_address }}"
    user: muster
    identity: /var/lib/muster/ssh/muster/id_ed25519
  become: true
  register: look
"""

RETURN = r"""
key: {description: The public key. Empty in check mode where it is not made yet., type: str, returned: success}
host_keys: {description: Public host keys of the node's sshd., type: list, elements: str, returned: success}
port: {description: Port of its sshd., type: int, returned: success}
hostname: {description: The name that the node gives itself., type: str, returned: success}
sshd: {description: What is to be done about the settings of sshd. Empty means nothing., type: str, returned: success}
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
    # ssh-keygen makes the key 0600 whatever this is; the folders may be entered by everybody.
    os.umask(0o022)
    with one_sentence(module):
        result = provide(module.params, check=module.check_mode)
    for sentence in warnings(module.params, result.pop("overridden")):
        module.warn(sentence)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
