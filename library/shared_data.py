#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Has folders of a file server mounted on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_data
short_description: Has folders of a file server mounted on a node
version_added: "0.2.0"
description:
  - Writes a mount unit and an automount unit of systemd for each folder, so that it is mounted when it is used and no
    boot waits for a server. Then it uses each folder once, and fails where one does not come up.
  - A folder that has something in it, or on which somebody else has mounted something, is refused. What a line of
    C(/etc/fstab) mounts is left to that, and only has to be the same.
  - Units that this module has written and that are not requested any more are ended and removed; in use, they stay.
author: The Muster authors
options:
  node:
    description: Name of the node, for messages.
    type: str
    required: true
  packages:
    description: By the type of a file system, the package that mounts it.
    type: dict
    default: {}
  mode:
    description: With V(manage) what differs is done. With V(verify) the module fails on a difference.
    type: str
    choices: [manage, verify]
    default: manage
extends_documentation_fragment: [action_common_attributes, role_options.shared_data]
attributes:
  check_mode: {support: full, description: "Folders are not used then, so that nothing is mounted by the check."}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Have the data of the file server on every node
  shared_data:
    node: "{{ inventory_hostname }}"
    mounts:
      - {source: "files:/export/data", path: /data}
    packages: {nfs: nfs-common}
"""

RETURN = r"""
differences:
  description: What was done something about, or would be, one sentence each.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/system/data.automount is missing]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster_node.shared_data.provide import provide
from ansible.module_utils.muster_node.tools.result import one_sentence

SPEC = {
    "node": {"type": "str", "required": True},
    "mounts": {"type": "list", "elements": "dict", "default": []},
    "scratch": {"type": "str", "default": ""},
    "scratch_gb": {"type": "int", "default": 0},
    "packages": {"type": "dict", "default": {}},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    os.umask(0o022)
    with one_sentence(module):
        module.exit_json(**provide(module.params, check=module.check_mode))


if __name__ == "__main__":
    main()
