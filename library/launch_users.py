#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Has people launch as themselves on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: launch_users
short_description: Have people launch as themselves on a node
description:
  - Gives accounts that exist what a launch of their own needs - the group C(muster-launch), a user manager that stays
    after the logout, its limits, seats that they can take, a folder of their own, and C(torchrun) in login shells.
  - An account is never made or altered otherwise. Who is not in the list any more loses what this module gave, and
    keeps all files; as long as a launch of theirs runs, all stays.
  - A user manager that runs already has its limits and groups from its start. It is started anew where nothing else of
    the account runs; else that is left for the next boot, and said.
version_added: "0.2.0"
author: The Muster authors
options:
  node:
    description: Name of the node, for messages.
    type: str
    required: true
  users:
    description:
      - Accounts, each as its name, or as a mapping of O(memlock), O(nofile) and O(tasks) with a C(name).
    type: list
    elements: raw
    default: []
  memlock:
    description: Bytes of memory that an account may lock, with K, M, G or T, or V(infinity).
    type: str
    default: infinity
  nofile:
    description: Files that a process of an account may have open, as one number or as the soft and the hard limit.
    type: str
    default: "65536:1048576"
  tasks:
    description: Processes and threads of an account, as a number, a share of what the system can have, or V(infinity).
    type: str
    default: 50%
  root:
    description: Folder under which each account has one of its own. It must be root's, and on a disk of the node.
    type: path
    required: true
  torchrun:
    description: What C(torchrun) leads to in login shells.
    type: path
    required: true
  gpus:
    description: Number of GPUs; those that are there count as well.
    type: int
    default: 0
  mode:
    description: With V(manage) what differs is done. With V(verify) the module fails on a difference.
    type: str
    choices: [manage, verify]
    default: manage
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Let two people launch as themselves
  launch_users:
    node: "{{ inventory_hostname }}"
    users: [anna, {name: ben, memlock: 64G}]
    root: /var/lib/muster/users
    torchrun: /opt/muster/pytorch/current/bin/torchrun
"""

RETURN = r"""
differences:
  description: What was done something about, or would be, one sentence each.
  returned: success
  type: list
  elements: str
  sample: [anna is not in the group muster-launch]
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.launch_users.model import RECORD, Request
from ansible.module_utils.muster.launch_users.plan import make_plan
from ansible.module_utils.muster.launch_users.request import faults, limit_faults, users_of
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.launch_users.act import act
from ansible.module_utils.muster_node.launch_users.look import observe, record
from ansible.module_utils.muster_node.tools import files
from ansible.module_utils.muster_node.tools.result import RefusedError, diff, lines, one_sentence, refuse, warn

SPEC = {
    "node": {"type": "str", "required": True},
    "users": {"type": "list", "elements": "raw", "default": []},
    "memlock": {"type": "str", "default": "infinity"},
    "nofile": {"type": "str", "default": "65536:1048576"},
    "tasks": {"type": "str", "default": "50%"},
    "root": {"type": "path", "required": True},
    "torchrun": {"type": "path", "required": True},
    "gpus": {"type": "int", "default": 0},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
}
FIX = f"To change it, run {playbook('site.yml', tags='launch_users', launch_users_mode='manage')}"


def request_of(params: dict[str, Any]) -> Request:
    limits = {key: params[key] for key in ("memlock", "nofile", "tasks")}
    wrong = [*faults(params["users"], ""), *limit_faults(limits)]
    refuse([f"{what}: {fix}" for what, fix in wrong])
    return Request(users_of(params["users"], limits), params["root"], params["torchrun"], params["gpus"])


def run_module(module: AnsibleModule) -> dict[str, Any]:
    request = request_of(module.params)
    try:
        noted = record()
    except ValueError as problem:
        raise RefusedError(f"{RECORD}: {problem}", "Remove it, and take back by hand what it was about") from problem
    if not request.users and not noted.users and not noted.group:
        return {"changed": False, "differences": []}
    plan = make_plan(request, observe(request, noted))
    refuse(plan.problems, plan.differences if module.params["mode"] == "verify" else (), FIX)
    shown = [diff("launch users", lines(plan.lines_before), lines(plan.lines_after))]
    shown += [diff(path, files.text(path) or "", text or "") for path, text in plan.files.items()]
    if plan.needed and not module.check_mode:
        act(plan, request)
    warn(module, plan.notes)
    return {"changed": plan.needed, "differences": plan.differences, "diff": shown}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    os.umask(0o022)
    with one_sentence(module):
        module.exit_json(**run_module(module))


if __name__ == "__main__":
    main()
