#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Looks which CUDA toolkits a node has, and changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkits
short_description: Look which CUDA toolkits a node has
version_added: "0.1.0"
description:
  - Looks at every folder C(/usr/local/cuda-X.Y), whether packages brought it, and what its C(nvcc --version) says; and
    where C(/usr/local/cuda) leads.
  - Says which packages are still needed. A toolkit that no package brought is taken as it is, and named.
author: The Muster authors
options:
  node:
    description: Name of the node, for messages.
    type: str
    required: true
  mode:
    description: With V(verify) the module fails on a difference. V(manage) says what is to be done.
    type: str
    choices: [manage, verify]
    default: manage
  fix:
    description: What to do about a difference; the end of the sentence with which V(verify) fails.
    type: str
    default: ""
  versions:
    description: Versions that the node shall have, such as V(13.0).
    type: list
    elements: str
    required: true
  default:
    description: Version to which C(/usr/local/cuda) shall lead. Empty for wherever it leads.
    type: str
    default: ""
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Says as well whether C(/usr/local/cuda) would be changed.}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Look at the CUDA toolkits
  cuda_toolkits:
    node: "{{ inventory_hostname }}"
    versions: ["12.8", "13.0"]
  register: look
"""

RETURN = r"""
packages:
  description: Packages that the node shall have for them.
  returned: success
  type: list
  elements: str
  sample: [cuda-toolkit-13-0]
default:
  description: Where C(/usr/local/cuda) is to lead; empty where it stays.
  returned: success
  type: str
  sample: /usr/local/cuda-13.0
refused:
  description: Packages beside which none of these is installed, with the reason.
  returned: success
  type: dict
needed:
  description: Whether anything differs.
  returned: success
  type: bool
notes:
  description: Toolkits that no package brought. Each is a warning as well.
  returned: success
  type: list
  elements: str
"""

import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.gpu_stack import cuda_toolkits as domain
from ansible.module_utils.muster_node.tools.result import diff, one_sentence, refuse, warn
from ansible.module_utils.muster_node.tools.run import run

SPEC = {
    "node": {"type": "str", "required": True},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
    "fix": {"type": "str", "default": ""},
    "versions": {"type": "list", "elements": "str", "required": True},
    "default": {"type": "str", "default": ""},
}


def look() -> domain.ToolkitsState:
    root = Path(domain.ROOT)
    folders = {}
    for path in sorted(root.parent.glob("cuda-*")):
        version = re.fullmatch(r"cuda-(\d+\.\d+)", path.name)
        if version and path.is_dir() and not path.is_symlink():
            said = run(str(path / "bin/nvcc"), "--version", seconds=20)
            owned = bool(run("dpkg-query", "--search", str(path)).text)
            folders[version[1]] = domain.ToolkitFolder(owned, said.text, said.why)
    return domain.ToolkitsState(
        folders=folders,
        link=str(root.readlink()) if root.is_symlink() else "",
        target=str(root.resolve()) if root.exists() else "",
        folder_instead=root.is_dir() and not root.is_symlink(),
    )


def run_module(module: AnsibleModule) -> dict[str, Any]:
    given = module.params
    seen = look()
    verifies = given["mode"] == "verify"
    plan = domain.make_plan(given["versions"], given["default"], seen, verifies=verifies)
    warn(module, plan.notes)
    refuse(plan.problems, plan.differences if verifies else (), given["fix"])
    return {
        # In a real run the tasks that follow do it, and say so.
        "changed": module.check_mode and bool(plan.default),
        "diff": diff(domain.ROOT, *(f"{link}\n" if plan.default else "" for link in (seen.target, plan.default))),
        "packages": plan.packages,
        "default": plan.default,
        "refused": {} if verifies else domain.REFUSED,
        "needed": bool(plan.differences),
        "notes": plan.notes,
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    with one_sentence(module):
        module.exit_json(**run_module(module))


if __name__ == "__main__":
    main()
