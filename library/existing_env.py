#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Looks at an environment that somebody else has made on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: existing_env
short_description: Look at an environment that somebody else has made, and change nothing
version_added: "0.2.0"
description:
  - Looks which program has made an environment (conda, mamba, micromamba, pixi, uv, virtualenv or venv), whether its
    Python starts and imports torch as an unprivileged user, and who may change it. Used by the controller's part of
    M(pytorch_env) for the entries of C(cluster_environments) that have a C(prefix), which also judges it.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  prefix:
    description: The environment's folder, which has C(bin/python).
    type: path
    required: true
  user:
    description: Unprivileged user as whom it is looked at. V(nobody) looks until it exists.
    type: str
    default: nobody
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Look at an environment of conda
  existing_env:
    node: "{{ inventory_hostname }}"
    prefix: /opt/miniconda3/envs/train
    user: muster
  become: true
"""

RETURN = r"""
there:
  description: Whether it has a Python.
  returned: always
  type: bool
marks:
  description: The beginnings of the files by which the program that made it is known, by their names.
  returned: always
  type: dict
everybody:
  description: A file or folder of it that everybody may write to; empty for none.
  returned: always
  type: str
other:
  description: Who else than root may change it, as a sentence; empty for nobody.
  returned: always
  type: str
torchrun:
  description: Whether it has C(bin/torchrun).
  returned: always
  type: bool
said:
  description: What its Python says of itself, where it was started.
  returned: always
  type: dict
looked_as:
  description: User as whom its Python was started.
  returned: always
  type: str
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
