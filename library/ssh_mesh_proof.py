#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Logs in on the peers as the training user."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_proof
short_description: Proves that the training user can log in on the peers
description:
  - Runs C(ssh PEER hostname) as the user, without a password and with checked host keys, on all peers at once, and
    fails with each peer on which it did not work, why, and what to type.
  - Beyond sixteen peers it takes a sample, such that every node is logged in on by some other.
  - A peer that was not looked at in this run is not tried.
version_added: "0.1.0"
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory.
    type: str
    required: true
  user:
    description: The training user.
    type: str
    required: true
  members:
    description: Every node of the cluster, as M(ssh_mesh_members) returns them.
    type: list
    elements: dict
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode:
    support: full
    description: "In check mode nothing is tried, because what a login needs may not be there yet."
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Log in on the peers
  ssh_mesh_proof:
    node: "{{ inventory_hostname }}"
    user: muster
    members: "{{ members.members }}"
  become: true
"""

RETURN = r"""
tried: {description: Peers that were logged in on., type: list, elements: str, returned: always}
not_tried: {description: Peers that were not, with the reason., type: dict, returned: always}
"""

import os
import pwd
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.network import ssh_mesh
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.tools.run import run

# sshd lets 10 connections wait for their login by default (MaxStartups), and here all nodes come at once.
AT_ONCE = 6
TRIES = 4
TIMEOUT = 30
MOST = 64_000  # bytes of what a login prints
# The user's own settings for connections that are shared must not stand in for a login.
OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ControlMaster=no", "ControlPath=none", "ClearAllForwardings=yes")


def attempt(entry: pwd.struct_passwd, peer: ssh_mesh.Member) -> ssh_mesh.Attempt:
    argv = ["ssh", "-n", "-T", *(f"-o{option}" for option in OPTIONS), peer.name, "hostname"]
    names = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    done = run(*argv, seconds=TIMEOUT, env={"PATH": os.defpath, "LC_ALL": "C", **names}, user=entry, most=MOST)
    if done.code is None:
        return ssh_mesh.Attempt(peer, 255, f"timed out after {TIMEOUT} s" if done.late else done.why, "")
    lines = done.text.split()
    # A shell without a login says so on standard output.
    said = done.aside if done.code == 0 else f"{done.aside}\n{done.text}"
    return ssh_mesh.Attempt(peer, done.code, said, lines[-1] if lines else "")


def log_in(entry: pwd.struct_passwd, peer: ssh_mesh.Member) -> ssh_mesh.Attempt:
    for number in range(1, TRIES):
        tried = attempt(entry, peer)
        if not ssh_mesh.passing(tried):
            return tried
        time.sleep(0.5 * number)
    return attempt(entry, peer)


def prove(params: dict[str, Any]) -> dict[str, Any]:
    members = {given["name"]: ssh_mesh.member_of(given) for given in params["members"]}
    not_tried = {
        name: f"it took no part in this run: run {playbook('playbooks/network.yml')} with it"
        for name, member in members.items()
        if not member.seen
    }
    there = [name for name, member in members.items() if member.seen]
    chosen = ssh_mesh.sample(there, params["node"])
    not_tried |= {
        name: f"a sample of {len(chosen)} peers was tried"
        for name in there
        if name not in chosen and name != params["node"]
    }
    entry = pwd.getpwnam(params["user"])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        attempts = list(pool.map(lambda name: log_in(entry, members[name]), chosen))
    result: dict[str, Any] = {"changed": False, "tried": chosen, "not_tried": not_tried}
    refusals = ssh_mesh.refusals(params["user"], attempts)
    if refusals:
        lines = [f"{params['node']}: {params['user']} cannot log in from here on", *(f"- {text}" for text in refusals)]
        result.update(failed=True, msg="\n".join(lines))
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "members": {"type": "list", "elements": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="Logins are not tried in check mode.", tried=[], not_tried={})
    result = prove(module.params)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
