#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Configures accounts of a node for user launches."""

from __future__ import annotations

DOCUMENTATION = r"""
module: launch_users
short_description: Configure a node for user launches
version_added: "0.2.0"
description:
  - Configures existing accounts for user launches. Each account gets the group C(muster-launch), a systemd user manager
    that keeps running after logout, resource limits, GPU and CPU slots, a folder, and C(torchrun) in login shells.
  - The module does not create accounts and changes nothing else. If an account is no longer listed, the module removes
    these settings, except while a launch of the account is running. Files of the account are kept.
  - A user manager that is already running keeps its old limits and groups. The module restarts the user manager if no
    other process of the account is running. Otherwise, the change takes effect at the next boot.
author: The Muster authors
options:
  users:
    description:
      - Accounts that can run user launches. Each item is a name, or a mapping with C(name) and optionally O(memlock),
        O(nofile) and O(tasks) of that account.
    type: list
    elements: raw
    default: []
  root:
    description: Folder with one subfolder per account. Must be owned by root and on a local disk.
    type: path
    required: true
  torchrun:
    description: Path of the torchrun that C(torchrun) starts in login shells.
    type: path
    required: true
  gpus:
    description: Number of GPUs of the node. If more GPUs are detected, their number is used.
    type: int
    default: 0
extends_documentation_fragment:
  [role_options.posix, action_common_attributes, role_options.launch_users, role_options.node, role_options.mode]
"""

EXAMPLES = r"""
- name: Allow user launches for two accounts
  launch_users:
    node: "{{ inventory_hostname }}"
    users: [anna, {name: ben, memlock: 64G}]
    root: /var/lib/muster/users
    torchrun: /opt/muster/pytorch/current/bin/torchrun
"""

RETURN = r"""
differences:
  description: Differences that were or would be applied, one sentence each.
  returned: success
  type: list
  elements: str
  sample: [anna is not in the group muster-launch]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster_node.launch_users.provide import provide
from ansible.module_utils.muster_node.tools.result import one_sentence, warn

SPEC = {
    "node": {"type": "str", "required": True},
    "users": {"type": "list", "elements": "raw", "default": []},
    "memlock": {"type": "str", "default": "infinity"},
    "nofile": {"type": "str", "default": "65536:1048576"},
    "tasks": {"type": "str", "default": "50%"},
    "root": {"type": "path", "required": True},
    "torchrun": {"type": "path", "required": True},
    "gpus": {"type": "int", "default": 0},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    os.umask(0o022)
    with one_sentence(module):
        result = provide(module.params, check=module.check_mode)
        warn(module, result.pop("notes"))
        module.exit_json(**result)


if __name__ == "__main__":
    main()
