#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Inspects an environment on a node that Muster did not build."""

from __future__ import annotations

DOCUMENTATION = r"""
module: existing_env
short_description: Inspect an existing Python environment without changing it
version_added: "0.2.0"
description:
  - Detects the tool that created an environment (conda, mamba, micromamba, pixi, uv, virtualenv or venv) and which
    users have write access. Starts its Python and imports torch as an unprivileged user.
author: The Muster authors
options:
  prefix:
    description: Folder of the environment, which contains C(bin/python).
    type: path
    required: true
  user:
    description: >-
      Unprivileged user that starts Python for the inspection. If the user does not exist yet, V(nobody) is used.
    type: str
    default: nobody
extends_documentation_fragment: [action_common_attributes, role_options.node]
attributes:
  check_mode: {support: full, description: Same behaviour as without check mode.}
  diff_mode: {support: none, description: "Changes nothing, so there is no diff."}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Inspect a conda environment
  existing_env:
    node: "{{ inventory_hostname }}"
    prefix: /opt/miniconda3/envs/train
    user: muster
  become: true
"""

RETURN = r"""
there: {description: Whether the environment has a Python., returned: always, type: bool}
marks:
  description: First part of the files that identify the tool that created the environment, by file name.
  returned: always
  type: dict
everybody:
  description: A world-writable file or folder of the environment. Empty if there is none.
  returned: always
  type: str
other:
  description: Users other than root with write access, as a sentence. Empty if there are none.
  returned: always
  type: str
torchrun: {description: Whether the environment has C(bin/torchrun)., returned: always, type: bool}
said:
  description: Information reported by the Python of the environment, if it was started.
  returned: always
  type: dict
looked_as: {description: User that started the Python., returned: always, type: str}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster_node.pytorch.existing import look
from ansible.module_utils.muster_node.tools.result import one_sentence


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "prefix": {"type": "path", "required": True},
            "user": {"type": "str", "default": "nobody"},
        },
        supports_check_mode=True,
    )
    with one_sentence(module, module.params["prefix"]):
        module.exit_json(changed=False, **look(module.params["prefix"], module.params["user"]))


if __name__ == "__main__":
    main()
