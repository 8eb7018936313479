#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Has launch users run notebooks on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: workbench
short_description: Have launch users run notebooks on a node
version_added: "0.2.0"
description:
  - Puts there a unit of everybody's user manager, which starts for nobody by itself, what it runs besides JupyterLab,
    and a kernel for each environment. JupyterLab's own environment is C(pytorch_env)'s work.
  - Kernels are registered for the environments that have ipykernel, or whose Python is JupyterLab's. Nothing is put
    into an environment.
  - With V(absent) of O(state), notebooks that run are ended, and all of it is taken off, with JupyterLab's environment.
    People's files stay.
author: The Muster authors
options:
  node:
    description: Name of the node, for messages.
    type: str
    required: true
  root:
    description: Folder of JupyterLab's environment. It must be root's.
    type: path
    required: true
  users_root:
    description: Folder under which each launch user has one of their own.
    type: path
    required: true
  programs:
    description: Texts that lie in O(root), by their names.
    type: dict
    default: {}
  environments:
    description:
      - Environments that get a kernel, as paths by their names. V(default) is the one that notebooks use unasked.
      - Default, those of the node, which the controller's part of the module knows.
    type: dict
    default: {}
  state:
    description: Whether the node is one for notebooks.
    type: str
    choices: [present, absent]
    default: present
  mode:
    description: With V(manage) what differs is done. With V(verify) the module fails on a difference.
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
- name: Have notebooks on this node
  workbench:
    node: "{{ inventory_hostname }}"
    root: /opt/muster/workbench
    users_root: /var/lib/muster/users
    programs: {lab.py: "{{ lookup('file', 'lab.py') }}"}
  become: true
"""

RETURN = r"""
differences:
  description: What was done something about, or would be, one sentence each.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/user/muster-notebook.service is missing]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster_node.tools.result import one_sentence, warn
from ansible.module_utils.muster_node.workbench.provide import provide

SPEC = {
    "node": {"type": "str", "required": True},
    "root": {"type": "path", "required": True},
    "users_root": {"type": "path", "required": True},
    "programs": {"type": "dict", "default": {}},
    "environments": {"type": "dict", "default": {}},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
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
