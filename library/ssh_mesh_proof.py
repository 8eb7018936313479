#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Tests logins on the peers as the training user."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_proof
short_description: Test SSH logins between the nodes
version_added: "0.1.0"
description:
  - Runs C(ssh PEER hostname) as the user on all peers in parallel, without a password and with verified host keys. If a
    login fails, the module fails and reports the peer, the reason and the fix.
  - Successful logins are cached on the node with a digest of all settings at both ends. While the digest is unchanged,
    only a sample of the logins is tested, unless O(full) is set.
  - If there are more than 16 peers, only a sample is tested, chosen so that at least one node logs in to each node.
  - Peers that M(ssh_mesh_key) did not check in this run are not tested.
author: The Muster authors
options:
  user:
    description: Training user.
    type: str
    required: true
  members:
    description: All nodes of the cluster, as returned by M(ssh_mesh_members).
    type: list
    elements: dict
    required: true
  memory:
    description: Cache file for successful logins. If empty, no cache is used.
    type: path
    default: ""
  ways:
    description: Digest of the login settings of each peer. The action plugin computes the digests from O(looks).
    type: dict
    default: {}
  looks:
    description: Name of the variable with the registered result of M(ssh_mesh_files).
    type: str
    default: ""
  full:
    description: Whether to test all peers regardless of the cache.
    type: bool
    default: false
extends_documentation_fragment: [action_common_attributes, role_options.node]
attributes:
  check_mode:
    support: full
    description: Nothing is tested in check mode, because the required settings might be missing.
  diff_mode: {support: none, description: "Changes nothing, so there is no diff."}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Test logins on the peers
  ssh_mesh_proof:
    node: "{{ inventory_hostname }}"
    user: muster
    members: "{{ members.members }}"
    memory: /var/lib/muster/ssh/muster/proved.json
    looks: files
  become: true
"""

RETURN = r"""
tried: {description: Peers on which a login was tested., type: list, elements: str, returned: always}
not_tried: {description: "Peers that were not tested, with the reason.", type: dict, returned: always}
"""

import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.network import ssh_mesh
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.network import mesh_logins


def prove(params: dict[str, Any]) -> dict[str, Any]:
    members = {given["name"]: ssh_mesh.member_of(given) for given in params["members"]}
    not_tried = {
        name: f"not part of this run: run {playbook('playbooks/network.yml')} with this node"
        for name, member in members.items()
        if not member.seen
    }
    there = [name for name, member in members.items() if member.seen]
    sample = ssh_mesh.sample(there, params["node"])
    not_tried |= {
        name: f"only a sample of {len(sample)} peers was tested"
        for name in there
        if name not in sample and name != params["node"]
    }
    known = mesh_logins.remembered(params["memory"]) if params["memory"] else {}
    chosen = sample if params["full"] else ssh_mesh.to_prove(sample, known, params["ways"])
    not_tried |= {name: "unchanged since the last successful login" for name in sample if name not in chosen}
    attempts = mesh_logins.log_in_on(pwd.getpwnam(params["user"]), [members[name] for name in chosen])
    failed = [one.peer.name for one in attempts if ssh_mesh.refusals(params["user"], [one])]
    if params["memory"]:
        now = {name: way for name, way in params["ways"].items() if name in chosen and name not in failed}
        kept = {name: way for name, way in known.items() if name in members and name not in chosen}
        mesh_logins.remember(params["memory"], {**kept, **now})
    result: dict[str, Any] = {"changed": False, "tried": chosen, "not_tried": not_tried}
    refusals = ssh_mesh.refusals(params["user"], attempts)
    if refusals:
        lines = [f"{params['node']}: {params['user']} cannot log in to", *(f"- {text}" for text in refusals)]
        result.update(failed=True, msg="\n".join(lines))
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "members": {"type": "list", "elements": "dict", "required": True},
            "memory": {"type": "path", "default": ""},
            "ways": {"type": "dict", "default": {}},
            "looks": {"type": "str", "default": ""},
            "full": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="No login is tested in check mode.", tried=[], not_tried={})
    result = prove(module.params)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
