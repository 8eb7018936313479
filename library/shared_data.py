#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Mounts folders of a file server on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_data
short_description: Mount folders of a file server on a node
version_added: "0.2.0"
description:
  - Writes a systemd mount unit and automount unit for each folder. The folder is therefore mounted on first use, and a
    boot never waits for a server. Then accesses each folder once, and fails if a mount fails.
  - Rejects a folder that is not empty or that is already a mount point. Mounts in C(/etc/fstab) are compared with the
    requested mounts, but never changed.
  - Stops and removes Muster units that are no longer requested. Mounts in use are kept.
author: The Muster authors
options:
  packages:
    description: Package that provides the mount helper, by file system type.
    type: dict
    default: {}
extends_documentation_fragment:
  [action_common_attributes, role_options.shared_data, role_options.node, role_options.mode]
attributes:
  check_mode: {support: full, description: "Folders are not accessed in check mode, so that nothing is mounted."}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Mount the data of the file server
  shared_data:
    node: "{{ inventory_hostname }}"
    mounts:
      - {source: "files:/export/data", path: /data}
    packages: {nfs: nfs-common}
"""

RETURN = r"""
differences:
  description: Differences that were or would be applied, one sentence each.
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
