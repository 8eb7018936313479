#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Checks the CUDA toolkits of a node, without changes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkits
short_description: Check the CUDA toolkits of a node
version_added: "0.1.0"
description:
  - Finds all folders C(/usr/local/cuda-X.Y), and checks the output of C(nvcc --version), whether the folder belongs to
    a package, and the target of the link C(/usr/local/cuda).
  - Returns the packages to install. A toolkit that does not belong to a package is used unchanged and reported.
author: The Muster authors
options:
  mode:
    description: Mode of the module. V(verify) fails on differences. V(manage) returns the required changes.
    type: str
    choices: [manage, verify]
    default: manage
  fix:
    description: Suggested fix, appended to the error message of V(verify).
    type: str
    default: ""
  versions:
    description: Required toolkit versions, such as V(13.0).
    type: list
    elements: str
    required: true
  default:
    description: Version that C(/usr/local/cuda) must point to. If empty, any target is accepted.
    type: str
    default: ""
extends_documentation_fragment: [action_common_attributes, role_options.node]
attributes:
  check_mode: {support: full, description: Also reports whether C(/usr/local/cuda) would change.}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Check the CUDA toolkits
  cuda_toolkits:
    node: "{{ inventory_hostname }}"
    versions: ["12.8", "13.0"]
  register: look
"""

RETURN = r"""
packages:
  description: Packages required for the toolkits.
  returned: success
  type: list
  elements: str
  sample: [cuda-toolkit-13-0]
default:
  description: Required target of C(/usr/local/cuda). Empty if the link does not change.
  returned: success
  type: str
  sample: /usr/local/cuda-13.0
refused:
  description: Installed packages that prevent the installation, with the reason.
  returned: success
  type: dict
needed: {description: Whether the node differs from the request., returned: success, type: bool}
notes:
  description: Toolkits that do not belong to a package. Each one is also a warning.
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
        # In a normal run the following tasks make and report the change.
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
