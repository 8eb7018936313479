#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Writes the training user's ssh files on a node. What they hold is decided in muster/network/ssh_mesh.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_files
short_description: Lets the training user log in between the nodes, with checked host keys
description:
  - Keeps one block in the user's C(~/.ssh/authorized_keys) and one in C(~/.ssh/config), and the whole file
    C(~/.ssh/muster_known_hosts). Every other line of the first two stays as it is, byte for byte.
  - The files are read and written as the user, so that homes on a file server work, and links in them lead nowhere
    that the user could not reach.
  - Without any O(members) nothing of ours stays in the three files, and one that holds nothing else is removed.
  - Lines of a member that was not looked at in this run are kept. Those of a node that is no member any more fall away.
version_added: "0.1.0"
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  user:
    description: The training user.
    type: str
    required: true
  cluster:
    description: Name of the cluster. It is part of the comment of every line.
    type: str
    required: true
  identity:
    description: File of the user's private key.
    type: path
    required: true
  members:
    description: Every node of the cluster, as M(ssh_mesh_members) returns them.
    type: list
    elements: dict
    required: true
  mode:
    description: With V(verify) nothing is written, and the node fails with what differs.
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
- name: Know the peers, and let them in
  ssh_mesh_files:
    node: "{{ inventory_hostname }}"
    user: muster
    cluster: lab
    identity: /var/lib/muster/ssh/muster/id_ed25519
    members: "{{ members.members }}"
  become: true
"""

RETURN = r"""
strangers:
  description: Members that were not looked at in this run, and that this node does not know from an earlier one.
  type: list
  elements: str
  returned: success
"""

import contextlib
import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.network import ssh_mesh
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.tools import files
from ansible.module_utils.muster_node.tools.result import RefusedError, diff, one_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("authorized_keys", "config", ssh_mesh.KNOWN_HOSTS)
MOST = 4_000_000  # bytes of a file


@contextlib.contextmanager
def acting_as(entry: pwd.struct_passwd) -> Iterator[None]:
    """Be the user where files are concerned: root has no rights on many file servers."""
    groups, gid, uid = os.getgroups(), os.getegid(), os.geteuid()
    os.setgroups(os.getgrouplist(entry.pw_name, entry.pw_gid))
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    try:
        yield
    finally:
        os.seteuid(uid)
        os.setegid(gid)
        os.setgroups(groups)


class Folder:
    """The user's ~/.ssh."""

    def __init__(self, entry: pwd.struct_passwd) -> None:
        self.entry = entry
        self.path = Path(entry.pw_dir) / ".ssh"

    def read(self, name: str) -> str:
        """The text of a file, empty where there is none. Bytes that are no text survive (surrogateescape)."""
        path = str(self.path / name)
        try:
            content: bytes = files.read(path, most=MOST, links=True, owner=self.entry.pw_uid)
        except FileNotFoundError:
            return ""
        except files.ForeignError as foreign:
            raise RefusedError(
                f"{path} {foreign.strerror}, and is left alone:"
                f' sudo chown {self.entry.pw_name} {path}, or set ssh_mesh_mode to "off"'
            ) from None
        return content.decode("utf-8", "surrogateescape")

    def write(self, name: str, text: str) -> None:
        """At once or not at all. A link stays a link, and the file keeps its mode."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        content = text.encode("utf-8", "surrogateescape")
        files.replace(str(self.path / name), content, mode=0o600, keep=True, links=True)


def keep(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    user = params["user"]
    try:
        entry: pwd.struct_passwd | None = pwd.getpwnam(user)
    except KeyError:
        if not params["members"]:
            return {"changed": False, "strangers": [], "diff": []}
        if not check:
            raise RefusedError(
                f"has no user {user}: run {playbook('playbooks/baseline.yml')}, or correct cluster_user, ssh_mesh_users"
            ) from None
        entry = None
    with acting_as(entry) if entry else contextlib.nullcontext():
        folder = Folder(entry) if entry else None
        before = {name: folder.read(name) if folder else "" for name in NAMES}
        members = [ssh_mesh.member_of(given) for given in params["members"]]
        if members:
            wanted = ssh_mesh.wanted(params["cluster"], user, members, params["identity"], *before.values())
        else:
            wanted = ssh_mesh.forgotten(before["authorized_keys"], before["config"])
        after = dict(zip(NAMES, (wanted.authorized_keys, wanted.config, wanted.known_hosts), strict=True))
        changed = [name for name in NAMES if before[name] != after[name]]
        if params["mode"] == "verify" and changed:
            found = [sentence for name in changed for sentence in ssh_mesh.differences(name, before[name], after[name])]
            command = playbook("playbooks/network.yml", ssh_mesh_mode="manage")
            raise RefusedError(f"in ~{user}/.ssh, {'; '.join(found)}: run {command}")
        if folder and not check:
            # The logins of the others come last: until then nothing of this node's own is in their way.
            for name in reversed(NAMES):
                if name in changed and after[name]:
                    folder.write(name, after[name])
                elif name in changed:
                    files.remove(str(folder.path / name))
    return {
        "changed": bool(changed),
        "strangers": list(wanted.strangers),
        "diff": [diff(f"~{user}/.ssh/{name}", before[name], after[name]) for name in changed],
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "cluster": {"type": "str", "required": True},
            "identity": {"type": "path", "required": True},
            "members": {"type": "list", "elements": "dict", "required": True},
            "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
        },
        supports_check_mode=True,
    )
    with one_sentence(module, refusals=(ssh_mesh.BlockError,)):
        try:
            result = keep(module.params, check=module.check_mode)
        except OSError as problem:
            raise RefusedError(f"{problem.filename}: {problem.strerror}, as {module.params['user']}") from None
    if result["strangers"]:
        module.warn(
            f"{', '.join(result['strangers'])} took no part in this run, and the other nodes do not know its key yet:"
            f" run {playbook('playbooks/network.yml')} again when it answers, without --limit."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
