#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Unpacks, verifies and switches an environment of conda packages on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: conda_env
short_description: Manage an environment of conda packages on a node
version_added: "0.2.0"
description:
  - Unpacks an environment that was built on the controller, verifies that its Python starts, and then switches the link
    C(current) to the environment. The action plugin of M(pytorch_env) uses this module for C(cluster_environments).
  - The environment is verified on every run. If the environment is incomplete or different, it is unpacked again next
    to the old one. An older environment is removed only if no process uses it.
author: The Muster authors
options:
  root:
    description: Folder for the environments (C(envs/)) and the link C(current).
    type: path
    required: true
  sections:
    description: Entries of the lock file for this environment, one per platform.
    type: list
    elements: dict
    default: []
  target:
    description: Name of the environment for which the archive was built. Files in the archive contain its path.
    type: str
    default: ""
  archive:
    description: SHA-256 checksum of the archive in the folder C(store) of O(root).
    type: str
    default: ""
  user:
    description: Unprivileged user that starts the environment's Python to verify it.
    type: str
    default: nobody
  keep:
    description: Number of previous environments to keep.
    type: int
    default: 1
  step:
    description: Step to run. V(look) reports the required changes and changes nothing. V(provide) applies the changes.
    type: str
    choices: [look, provide]
    default: look
  lock_timeout:
    description: Time in seconds to wait for another run that uses the same O(root).
    type: int
    default: 900
extends_documentation_fragment: [role_options.posix, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Check an environment of conda packages
  conda_env:
    node: "{{ inventory_hostname }}"
    root: /opt/muster/pytorch/named/bio
  become: true
"""

RETURN = r"""
environment:
  description: Environment that C(current) points to after the changes.
  returned: when the lock has the environment
  type: str
plan: {description: "Required changes with reasons, in the format of M(pytorch_env).", returned: success, type: dict}
facts: {description: "Platform, C library version and kernel version.", returned: step is look, type: dict}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.pytorch.lock import LockError
from ansible.module_utils.muster_node.pytorch.conda import CondaManager, CondaRoot
from ansible.module_utils.muster_node.pytorch.root import LookedAs
from ansible.module_utils.muster_node.tools.result import one_sentence

SPEC = {
    "node": {"type": "str", "required": True},
    "root": {"type": "path", "required": True},
    "sections": {"type": "list", "elements": "dict", "default": []},
    "target": {"type": "str", "default": ""},
    "archive": {"type": "str", "default": ""},
    "user": {"type": "str", "default": "nobody"},
    "keep": {"type": "int", "default": 1},
    "step": {"type": "str", "choices": ["look", "provide"], "default": "look"},
    "lock_timeout": {"type": "int", "default": 900},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    os.umask(0o022)
    with one_sentence(module, params["root"], (LockError,)):
        manager = CondaManager(CondaRoot(params["root"], LookedAs.choose(params["user"])), params)
        module.exit_json(**(manager.look() if params["step"] == "look" else manager.provide()))


if __name__ == "__main__":
    main()
