#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Looks at what a node's peers must know of it, and makes the training user's key where there is none."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_key
short_description: The training user's ssh key of a node, and what its peers must know to trust the node
description:
  - Makes an ed25519 key on the node where there is none. The private key stays there - it is in no result, and its file
    lies outside of home, because homes are often shared between nodes.
  - Looks at the node's host keys, at the port of its sshd, and at whether sshd would let the user in.
version_added: "0.1.0"
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory.
    type: str
    required: true
  address:
    description: Address at which its peers reach it.
    type: str
    required: true
  user:
    description: The training user.
    type: str
    required: true
  identity:
    description: File of the private key. It belongs to the user, and its folder to root.
    type: path
    required: true
  comment:
    description: Comment of the key.
    type: str
    default: ""
  mode:
    description: With V(verify) nothing is made or fixed, and the node fails instead.
    type: str
    choices: [manage, verify]
    default: manage
  sshd_path:
    description: File of settings of sshd that the role keeps.
    type: path
    default: ""
  sshd_settings:
    description: What that file shall hold. Empty means that sshd is left alone.
    type: str
    default: ""
  rotate:
    description: Whether to make a new key although there is one.
    type: bool
    default: false
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Look at the user, its key and sshd
  ssh_mesh_key:
    node: "{{ inventory_hostname }}"
    address: "{{ cluster_address }}"
    user: muster
    identity: /var/lib/muster/ssh/muster/id_ed25519
  become: true
  register: look
"""

RETURN = r"""
key: {description: The public key. Empty in check mode where it is not made yet., type: str, returned: success}
host_keys: {description: Public host keys of the node's sshd., type: list, elements: str, returned: success}
port: {description: Port of its sshd., type: int, returned: success}
hostname: {description: The name that the node gives itself., type: str, returned: success}
sshd: {description: What is to be done about the settings of sshd. Empty means nothing., type: str, returned: success}
"""

import datetime as dt
import grp
import os
import pwd
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.network import sshd
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.tools import files
from ansible.module_utils.muster_node.tools.run import Answer
from ansible.module_utils.muster_node.tools.run import run as command

TOOL_TIMEOUT = 30
MANAGE = playbook("playbooks/network.yml", ssh_mesh_mode="manage")
SSHD = "/usr/sbin/sshd"
# A change of sshd that waits for its confirmation; see plugin_utils/muster_controller/guard.py.
GUARD = Path("/var/lib/muster/guard/sshd/state.json")


class MeshKeyError(Exception):
    """One sentence about what stands in the way and what to do."""


def run(*argv: str) -> Answer:
    answer = command(*argv, seconds=TOOL_TIMEOUT)
    if answer.code is None:
        raise MeshKeyError(answer.why)
    return answer


def settings_in_force(user: str, address: str) -> sshd.Settings:
    """The settings of sshd for this user, as a peer would meet them; nothing where sshd does not say them."""
    if not Path(SSHD).exists():
        raise MeshKeyError("has no ssh server: sudo apt-get install openssh-server")
    said = run(SSHD, "-T", "-C", f"user={user},host={address},addr={address}")
    broken = sshd.broken(said.code, said.aside)
    if broken:
        raise MeshKeyError(broken)
    return sshd.parse(said.text) if said.code == 0 else {}


def account_of(entry: pwd.struct_passwd) -> sshd.Account:
    groups = [grp.getgrgid(gid).gr_name for gid in os.getgrouplist(entry.pw_name, entry.pw_gid) if _has_name(gid)]
    # The eighth field of shadow is the last day, counted from 1970. Accounts of a directory service have no line there.
    fields: list[str] = []
    for line in files.read("/etc/shadow").decode("utf-8", "replace").splitlines():
        if line.startswith(f"{entry.pw_name}:"):
            fields = line.split(":")
    today = (dt.datetime.now(dt.timezone.utc) - dt.datetime.fromtimestamp(0, dt.timezone.utc)).days
    last = fields[7] if len(fields) > 7 else ""
    return sshd.Account(
        name=entry.pw_name,
        home=entry.pw_dir,
        shell=entry.pw_shell or "/bin/sh",
        groups=tuple(groups),
        locked=bool(fields) and fields[1].startswith("!"),
        expired=last.isdigit() and int(last) < today,
        loose=loose_paths(entry),
    )


def _has_name(gid: int) -> bool:
    try:
        grp.getgrgid(gid)
    except KeyError:
        return False
    return True


def loose_paths(entry: pwd.struct_passwd) -> dict[str, str]:
    """Paths that sshd would not trust. Debian's and Ubuntu's allows the user's own group, when nobody else is in it."""
    found: dict[str, str] = {}
    home = Path(entry.pw_dir)
    for path in (home, home / ".ssh", home / ".ssh/authorized_keys"):
        try:
            status = path.stat()
        except OSError:
            continue
        others = status.st_mode & stat.S_IWOTH
        if status.st_mode & stat.S_IWGRP and not (
            status.st_gid == entry.pw_gid and _has_name(status.st_gid) and _alone(entry, status.st_gid)
        ):
            others |= stat.S_IWGRP
        if others:
            found[str(path)] = f"chmod go-w {path}"
        elif status.st_uid not in (0, entry.pw_uid):
            found[str(path)] = f"chown {entry.pw_name} {path}"
    return found


def _alone(entry: pwd.struct_passwd, gid: int) -> bool:
    return not set(grp.getgrgid(gid).gr_mem) - {entry.pw_name}


def host_keys(settings: sshd.Settings) -> list[str]:
    """The public halves of the keys that sshd shows, as type and key."""
    private = [Path(path) for path in settings.get("hostkey", [])]
    public = [path.with_name(f"{path.name}.pub") for path in private] or sorted(
        Path("/etc/ssh").glob("ssh_host_*_key.pub")
    )
    return [" ".join(text.split()[:2]) for path in public if (text := files.text(str(path), links=True)) is not None]


def offered(address: str, port: int) -> dict[str, list[str]]:
    """The algorithms of the sshd that runs, which may have been started before its settings were written."""
    try:
        with socket.create_connection((address, port), timeout=5) as sock, sock.makefile("rb") as stream:
            sock.sendall(b"SSH-2.0-muster_look\r\n")
            for _ in range(20):  # a server may greet before its version
                if stream.readline(256).startswith(b"SSH-"):
                    break
            length = int.from_bytes(stream.read(4), "big")
            packet = stream.read(min(length, 65536))
        offers: dict[str, list[str]] = sshd.offers_of(packet[1 : len(packet) - packet[0]])
    except (OSError, ValueError, IndexError):
        return {}
    return offers


def judge_sshd(params: dict[str, Any], settings: sshd.Settings, port: int) -> tuple[str, list[str]]:
    """What is to be done about the settings of sshd, and the weak algorithms that the site has chosen itself."""
    dropin = params["sshd_settings"]
    if not dropin or not settings:
        return "", []
    path = Path(params["sshd_path"])
    file = files.text(str(path), links=True)
    if GUARD.exists():
        return "settle", []
    return sshd.pending(dropin, file, settings, offered(params["address"], port)), sshd.overridden(
        dropin, file, settings
    )


class Identity:
    """The private key's file."""

    def __init__(self, path: str, entry: pwd.struct_passwd, comment: str) -> None:
        self.path = Path(path)
        self.entry = entry
        self.comment = comment

    def public(self) -> str:
        """The public key; nothing where there is no usable one. It is worked out, so that no second file can differ."""
        if not self.path.is_file():
            return ""
        said = run("ssh-keygen", "-y", "-P", "", "-f", str(self.path))
        words = said.text.split()
        return " ".join(words[:2]) if said.code == 0 and words[:1] == ["ssh-ed25519"] else ""

    def is_kept_well(self) -> bool:
        status = self.path.stat()
        return status.st_uid == self.entry.pw_uid and stat.S_IMODE(status.st_mode) == 0o600

    def keep_well(self) -> None:
        self.path.chmod(0o600)
        os.chown(self.path, self.entry.pw_uid, self.entry.pw_gid)

    def make(self) -> None:
        """The folder is root's, so that nobody can put a link in the way; the key is in place with its first byte."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=".new-") as folder:
            new = Path(folder) / self.path.name
            made = run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.comment, "-f", str(new))
            if made.code != 0:
                raise MeshKeyError(f"ssh-keygen cannot make {self.path}: {made.aside.strip()}")
            os.chown(new, self.entry.pw_uid, self.entry.pw_gid)
            new.replace(self.path)


def look(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    name = params["user"]
    settings = settings_in_force(name, params["address"])
    port = sshd.port_at(settings, params["address"])
    to_do, overridden = judge_sshd(params, settings, port)
    known: dict[str, Any] = {
        "host_keys": host_keys(settings),
        "port": port,
        "hostname": os.uname().nodename,
        "sshd": to_do,
        "overridden": overridden,
    }
    verifies = params["mode"] == "verify"
    if verifies and to_do:
        raise MeshKeyError(
            f'sshd is not as {params["sshd_path"]} shall have it: run {MANAGE}, or set ssh_mesh_sshd to "off"'
        )
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        if check and not verifies:
            # On a bare node the baseline makes the user in the same run; here it could only be foretold.
            return {**known, "changed": True, "key": "", "diff": diff("", "", params["identity"])}
        raise MeshKeyError(
            f"has no user {name}: run {playbook('playbooks/baseline.yml')}, or correct cluster_user"
        ) from None
    refusals = sshd.refusals(account_of(entry), settings)
    if refusals:
        raise MeshKeyError("; ".join(refusals) + '. Without logins between the nodes: set ssh_mesh_mode to "off"')
    identity = Identity(params["identity"], entry, params["comment"])
    before = identity.public()
    new = not before or params["rotate"]
    fix = not new and not identity.is_kept_well()
    if verifies and (new or fix):
        what = "cannot be used" if new else f"must be {name}'s alone"
        raise MeshKeyError(f"{identity.path} {what}: run {MANAGE}")
    if check:
        return {
            **known,
            "changed": new or fix,
            "key": "" if new else before,
            "diff": diff(before, "" if new else before, str(identity.path)),
        }
    if new:
        identity.make()
    if fix:
        identity.keep_well()
    after = identity.public() if new else before
    return {**known, "changed": new or fix, "key": after, "diff": diff(before, after, str(identity.path))}


def diff(before: str, after: str, path: str) -> dict[str, str]:
    """Of public keys, never of private ones."""
    return {
        "before": f"{before}\n" if before else "",
        "after": f"{after}\n" if after else "ssh-ed25519, made when this is not a check\n",
        "before_header": f"public key of {path}",
        "after_header": f"public key of {path}",
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "identity": {"type": "path", "required": True},
            "comment": {"type": "str", "default": ""},
            "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
            "sshd_path": {"type": "path", "default": ""},
            "sshd_settings": {"type": "str", "default": ""},
            "rotate": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    # ssh-keygen makes the key 0600 whatever this is; the folders may be entered by everybody.
    os.umask(0o022)
    try:
        result = look(module.params, check=module.check_mode)
    except MeshKeyError as problem:
        module.fail_json(msg=f"{module.params['node']}: {problem}.")
    except OSError as problem:
        module.fail_json(msg=f"{module.params['node']}: {problem.filename}: {problem.strerror}.")
    overridden = result.pop("overridden")
    if overridden:
        module.warn(
            f"{module.params['node']}: sshd offers {', '.join(overridden)}, which ssh-audit fails: the site's settings"
            f" come before {module.params['sshd_path']}, and are left alone. ssh_mesh_sshd: off ends this warning."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
