#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Has people launch as themselves on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: launch_users
short_description: Have people launch as themselves on a node
version_added: "0.2.0"
description:
  - Gives accounts that exist what a launch of their own needs - the group C(muster-launch), a user manager that stays
    after the logout, its limits, seats that they can take, a folder of their own, and C(torchrun) in login shells.
  - An account is never made or altered otherwise. Who is not in the list any more loses what this module gave, and
    keeps all files; as long as a launch of theirs runs, all stays.
  - A user manager that runs already has its limits and groups from its start. It is started anew where nothing else of
    the account runs; else that is left for the next boot, and said.
author: The Muster authors
options:
  node:
    description: Name of the node, for messages.
    type: str
    required: true
  users:
    description:
      - Accounts, each as its name, or as a mapping of O(memlock), O(nofile) and O(tasks) with a C(name).
    type: list
    elements: raw
    default: []
  root:
    description: Folder under which each account has one of its own. It must be root's, and on a disk of the node.
    type: path
    required: true
  torchrun:
    description: What C(torchrun) leads to in login shells.
    type: path
    required: true
  gpus:
    description: Number of GPUs; those that are there count as well.
    type: int
    default: 0
  mode:
    description: With V(manage) what differs is done. With V(verify) the module fails on a difference.
    type: str
    choices: [manage, verify]
    default: manage
extends_documentation_fragment: [action_common_attributes, role_options.launch_users]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Let two people launch as themselves
  launch_users:
    node: "{{ inventory_hostname }}"
    users: [anna, {name: ben, memlock: 64G}]
    root: /var/lib/muster/users
    torchrun: /opt/muster/pytorch/current/bin/torchrun
"""

RETURN = r"""
differences:
  description: What was done something about, or would be, one sentence each.
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
