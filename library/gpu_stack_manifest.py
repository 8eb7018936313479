#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Records the installed GPU stack on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_stack_manifest
short_description: Record the installed GPU stack on a node
version_added: "0.1.0"
description:
  - Writes a file for users and programs, with the version and origin of the installed GPU stack packages, the loaded
    driver, and the driver installed for each kernel.
  - Muster never uses this file to make a decision. The file has no timestamps and is written only if its content
    changes.
author: The Muster authors
options:
  path:
    description: Path of the file.
    type: path
    required: true
extends_documentation_fragment: [role_options.debian, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Record the installed GPU stack
  gpu_stack_manifest:
    node: "{{ inventory_hostname }}"
    path: /var/lib/muster/gpu_stack.json
"""

RETURN = r"""
changed: {description: Whether the file was written., returned: success, type: bool}
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.gpu_stack import manifest as domain
from ansible.module_utils.muster.inspect.facts import facts
from ansible.module_utils.muster_node.looks import bus, stack, system
from ansible.module_utils.muster_node.tools import files
from ansible.module_utils.muster_node.tools.run import run

if TYPE_CHECKING:
    from collections.abc import Collection


def read(path: Path) -> dict[str, Any]:
    """Return the content of the file. If the file is missing or invalid, return {}, so that the file is written
    again."""
    try:
        there = json.loads(files.read(str(path)))
    except (OSError, ValueError):
        return {}
    return there if isinstance(there, dict) else {}


def ask_for_origins(packages: Collection[str]) -> dict[str, str]:
    if not packages:
        return {}
    found: dict[str, str] = domain.origins(run("apt-cache", "policy", *packages, seconds=60).text)
    return found


def main() -> None:
    module = AnsibleModule(
        {"node": {"type": "str", "required": True}, "path": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    seen = facts({"system": system.look(), "pci": bus.look(), "stack": stack.look()})
    there = read(path)
    now = domain.manifest(module.params["node"], seen, {})
    if domain.same(there, now):
        module.exit_json(changed=False)
    now = domain.manifest(module.params["node"], seen, ask_for_origins(now["packages"]))
    text = json.dumps(now, indent=2) + "\n"
    if not module.check_mode:
        files.replace(str(path), text.encode(), mode=0o644, keep=True, parents=True)
    before = json.dumps(there, indent=2) + "\n" if there else ""
    diff = {"before_header": str(path), "after_header": str(path), "before": before, "after": text}
    module.exit_json(changed=True, diff=diff)


if __name__ == "__main__":
    main()
