#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Configures a node for notebooks of launch users."""

from __future__ import annotations

DOCUMENTATION = r"""
module: workbench
short_description: Configure a node for notebooks of launch users
version_added: "0.2.0"
description:
  - Installs a systemd user unit that does not start automatically, the programs that the unit runs, and a Jupyter
    kernel for each environment. M(pytorch_env) manages the JupyterLab environment.
  - Registers kernels for environments that contain ipykernel or that use JupyterLab's Python. Environments are not
    changed.
  - If O(state=absent), stops running notebooks and removes all files, including the JupyterLab environment. Files of
    users are kept.
author: The Muster authors
options:
  root:
    description: Folder of the JupyterLab environment. Must be owned by root.
    type: path
    required: true
  users_root:
    description: Folder with one subfolder per launch user.
    type: path
    required: true
  programs:
    description: Programs to write to O(root), as a mapping from file names to contents.
    type: dict
    default: {}
  environments:
    description:
      - Environments that get a kernel, as a mapping from names to paths. V(default) is the default kernel of notebooks.
      - If empty, the action plugin uses the environments of the node.
    type: dict
    default: {}
  state:
    description: Whether users can run notebooks on the node.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  [role_options.posix, action_common_attributes, role_options.node, role_options.mode]
"""

EXAMPLES = r"""
- name: Configure notebooks on this node
  workbench:
    node: "{{ inventory_hostname }}"
    root: /opt/muster/workbench
    users_root: /var/lib/muster/users
    programs: {lab.py: "{{ lookup('file', 'lab.py') }}"}
  become: true
"""

RETURN = r"""
differences:
  description: Differences that were or would be applied, one sentence each.
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
