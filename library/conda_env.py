#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Unpacks, switches and looks at an environment of conda packages on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: conda_env
short_description: An environment of conda packages on a node
version_added: "0.2.0"
description:
  - Takes an environment that the controller has put together, looks whether its Python starts, and only then lets the
    link C(current) lead to it. Used by the controller's part of M(pytorch_env) for C(cluster_environments).
  - The environment is looked at on every run. What is unfinished or different is unpacked anew beside it. An older one
    is removed only when no process uses it.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  root:
    description: Folder that holds C(envs/) and the link C(current).
    type: path
    required: true
  sections:
    description: What the lock has for this request, for each platform.
    type: list
    elements: dict
    default: []
  target:
    description: Name of the environment that the archive was put together for; its path is in the files.
    type: str
    default: ""
  archive:
    description: The sha256 of the archive, which is in the folder C(store) of O(root).
    type: str
    default: ""
  user:
    description: Unprivileged user as whom its Python is started.
    type: str
    default: nobody
  keep:
    description: Number of earlier environments that are kept.
    type: int
    default: 1
  step:
    description: V(look) says what is to be done, and changes nothing. V(provide) does it.
    type: str
    choices: [look, provide]
    default: look
  lock_timeout:
    description: Seconds to wait for another run that works in the same O(root).
    type: int
    default: 900
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Look at an environment of conda packages
  conda_env:
    node: "{{ inventory_hostname }}"
    root: /opt/muster/pytorch/named/bio
  become: true
"""

RETURN = r"""
environment:
  description: The environment that C(current) leads to, or will.
  returned: the lock has it
  type: str
plan:
  description: What was to be done and why, as M(pytorch_env) returns it.
  returned: success
  type: dict
facts:
  description: The platform, and the versions of its C library and kernel.
  returned: step is look
  type: dict
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
