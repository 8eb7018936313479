#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Removes Muster's files and settings from a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wipe_node
short_description: Remove the Muster files from a node
version_added: "0.2.0"
description:
  - Removes files, folders, finished units and an account. Each role lists the files that it has written.
  - In a folder, removes the given names, and the folder itself if it is empty. Never removes files that are not owned
    by root, files in a folder to which other users can write, or the contents of a mount. Removes empty parent folders
    that do not belong to a package, if they are in C(/etc) or their path contains the name of Muster.
  - Removes an account only if its comment shows that Muster created it. The home directory is kept.
  - Fails if the node is in use.
options:
  files:
    description: Files and links to remove if they exist. A C(*) matches any part of a name.
    type: list
    elements: str
    default: []
  folders:
    description: Folders to remove files from.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Path of the folder., type: path, required: true}
      only: {description: Patterns of the names to remove., type: list, elements: str, default: []}
      empty:
        {description: Patterns of the folders to remove if they are empty., type: list, elements: str, default: []}
      keeps: {description: Description of kept files in messages., type: str, default: Muster did not write}
  reexec:
    description: Whether systemd re-executes itself after the files are removed, so that its default settings apply.
    type: bool
    default: false
  restart:
    description: Units to restart after the files are removed, if the units are running.
    type: list
    elements: str
    default: []
  units:
    description: >-
      Name patterns of units that Muster starts. Finished units are reset. If a unit is running, the node is in use.
    type: list
    elements: str
    default: []
  idle:
    description: Folder that contains the PyTorch environments. The module fails if an environment is in
      use. If this option is empty, use is not checked.
    type: path
    default: ""
  account:
    description: Account to remove.
    type: dict
    suboptions:
      name: {description: Name of the account., type: str, required: true}
      comment: {description: Comment that identifies accounts created by Muster., type: str, required: true}
extends_documentation_fragment: [role_options.debian, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Remove the settings
  wipe_node:
    node: "{{ inventory_hostname }}"
    files: [/etc/sysctl.d/90-muster.conf]
    folders:
      - {path: /opt/muster/pytorch, only: [envs, wheels, current]}
  become: true
"""

RETURN = r"""
gone: {description: Files and settings that were or would be removed., returned: success, type: list, elements: str}
left:
  description: Files and settings that are kept, with the reason, one sentence each.
  returned: success
  type: list
  elements: str
msg: {description: The entries of C(left) as text., returned: when something is kept, type: str}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.members.wiping import Tree, WipedAccount, WipeRequest, make_plan, still_there
from ansible.module_utils.muster_node.tools.result import diff, lines, one_sentence, refuse
from ansible.module_utils.muster_node.wipe.wiping import act, observe

SEVERAL = {"type": "list", "elements": "str", "default": []}
SPEC = {
    "node": {"type": "str", "required": True},
    "files": SEVERAL,
    "folders": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "only": SEVERAL,
            "empty": SEVERAL,
            "keeps": {"type": "str", "default": "Muster did not write"},
        },
    },
    "reexec": {"type": "bool", "default": False},
    "restart": SEVERAL,
    "units": SEVERAL,
    "idle": {"type": "path", "default": ""},
    "account": {
        "type": "dict",
        "options": {"name": {"type": "str", "required": True}, "comment": {"type": "str", "required": True}},
    },
}


def request_of(params: dict[str, Any]) -> WipeRequest:
    trees = tuple(Tree(one["path"], tuple(one["only"]), one["keeps"], tuple(one["empty"])) for one in params["folders"])
    return WipeRequest(trees, WipedAccount(**params["account"]) if params["account"] else None)


def run_module(module: AnsibleModule) -> dict[str, Any]:
    request = request_of(module.params)
    plan = make_plan(request, observe(module.params, request))
    if not module.check_mode:  # check mode shows the plan of a node in use
        refuse(plan.problems)
    if plan.needed and not module.check_mode:
        act(plan, module.params)
        refuse(list(still_there(make_plan(request, observe(module.params, request)))))
    shown = diff(f"{module.params['node']}: files and settings of Muster", lines(plan.shown), "")
    left = [*plan.problems, *plan.left]
    said = [f"{module.params['node']}: {sentence}." for sentence in left]
    return {
        "changed": plan.needed,
        "gone": plan.shown,
        "left": left,
        **({"msg": "\n".join(said)} if said else {}),
        **({"diff": shown} if plan.needed else {}),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    with one_sentence(module):
        module.exit_json(**run_module(module))


if __name__ == "__main__":
    main()
