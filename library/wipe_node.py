#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Takes Muster's own things off a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wipe_node
short_description: Take Muster's own things off a node
version_added: "0.2.0"
description:
  - Removes files, folders, units that have ended and an account. What a role has put on a node, the role itself says.
  - Of a folder go the names that are given, empty folders, and the folder itself where nothing is left in it. Nothing
    is removed that is not root's, or that lies where others may write. Folders above what goes are removed where they
    are empty, and no package has them.
  - An account is removed only where its comment is the one with which Muster makes it. Its home stays.
  - Refuses under somebody's work.
options:
  node:
    description: Name of the node, for messages.
    type: str
    required: true
  files:
    description: Files and links that go, where they are there. A C(*) stands for any part of a name.
    type: list
    elements: str
    default: []
  folders:
    description: Folders from which something goes.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Where it is., type: path, required: true}
      only: {description: Patterns of the names in it that go., type: list, elements: str, default: []}
      keeps: {description: "What the rest is, for messages.", type: str, default: Muster did not write}
  reexec:
    description: Whether systemd reads its settings anew behind the files.
    type: bool
    default: false
  restart:
    description: Units that are restarted behind the files, if they run.
    type: list
    elements: str
    default: []
  units:
    description: Patterns of units that Muster starts. Those that have ended are forgotten; one that runs is work.
    type: list
    elements: str
    default: []
  idle:
    description: Folder of the PyTorch environments, where nobody may be at work. Empty for not looking.
    type: path
    default: ""
  account:
    description: An account that goes.
    type: dict
    suboptions:
      name: {description: Its name., type: str, required: true}
      comment: {description: The comment by which it is known., type: str, required: true}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: debian}
"""

EXAMPLES = r"""
- name: Take the settings off
  wipe_node:
    node: "{{ inventory_hostname }}"
    files: [/etc/sysctl.d/90-muster.conf]
    folders:
      - {path: /opt/muster/pytorch, only: [envs, wheels, current]}
  become: true
"""

RETURN = r"""
gone: {description: "What goes, or has gone.", returned: success, type: list, elements: str}
left: {description: "What stays, and why, a sentence each.", returned: success, type: list, elements: str}
msg: {description: "The same, for people.", returned: where something stays, type: str}
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
    trees = tuple(Tree(one["path"], tuple(one["only"]), one["keeps"]) for one in params["folders"])
    return WipeRequest(trees, WipedAccount(**params["account"]) if params["account"] else None)


def run_module(module: AnsibleModule) -> dict[str, Any]:
    request = request_of(module.params)
    plan = make_plan(request, observe(module.params, request))
    refuse(plan.problems)
    if plan.needed and not module.check_mode:
        act(plan, module.params)
        refuse(list(still_there(make_plan(request, observe(module.params, request)))))
    shown = diff(f"{module.params['node']}: what Muster has there", lines(plan.shown), "")
    said = [f"{module.params['node']}: {sentence}." for sentence in plan.left]
    return {
        "changed": plan.needed,
        "gone": plan.shown,
        "left": plan.left,
        **({"msg": "\n".join(said)} if said else {}),
        **({"diff": shown} if plan.needed else {}),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    with one_sentence(module):
        module.exit_json(**run_module(module))


if __name__ == "__main__":
    main()
