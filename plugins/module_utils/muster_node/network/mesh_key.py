"""Provide one node's part of the SSH mesh: the training user's key, the host keys, and the sshd settings."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.muster.network import sshd as domain
from ansible.module_utils.muster.verdict.commands import playbook

from ..tools.result import RefusedError, diff
from .account import account_of
from .sshd import host_keys, judge_sshd, run, settings_in_force

MANAGE = playbook("playbooks/network.yml", ssh_mesh_mode="manage")


def provide(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Inspect the node, and create the key except in check mode and with mode verify. params: options of
    library/ssh_mesh_key.py."""
    name = params["user"]
    settings = settings_in_force(name, params["address"])
    port = domain.port_at(settings, params["address"])
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
        raise RefusedError(f'sshd does not match {params["sshd_path"]}: run {MANAGE}, or set ssh_mesh_sshd to "off"')
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        if check and not verifies:
            # On a new node, the baseline creates the user in the same run; check mode only predicts it.
            return {**known, "changed": True, "key": "", **shown("", "", params["identity"])}
        raise RefusedError(
            f"has no user {name}: run {playbook('playbooks/baseline.yml')}, or correct cluster_user, ssh_mesh_users"
        ) from None
    refusals = domain.refusals(account_of(entry), settings)
    if refusals:
        raise RefusedError("; ".join(refusals) + '. To disable logins between the nodes, set ssh_mesh_mode to "off"')
    return {**known, **provide_key(params, entry, check=check)}


def warnings(params: dict[str, Any], overridden: list[str]) -> list[str]:
    """Return the warnings about sshd. overridden: weak algorithms in the site's sshd settings."""
    said = (
        f"{params['node']}: sshd offers {', '.join(overridden)}, which ssh-audit rejects: the site's settings"
        f" override {params['sshd_path']} and are not changed. Set ssh_mesh_sshd to off to disable this warning."
    )
    return [said] if overridden else []


def provide_key(params: dict[str, Any], entry: pwd.struct_passwd, *, check: bool) -> dict[str, Any]:
    identity = IdentityFile(params["identity"], entry, params["comment"])
    before = identity.public()
    new = not before or params["rotate"]
    fix = not new and not identity.is_kept_well()
    if params["mode"] == "verify" and (new or fix):
        what = "cannot be used" if new else f"must be accessible only to {entry.pw_name}"
        raise RefusedError(f"{identity.path} {what}: run {MANAGE}")
    after = "" if new else before
    if new and not check:
        identity.make()
        after = identity.public()
    if fix and not check:
        identity.keep_well()
    return {"changed": new or fix, "key": after, **shown(before, after, str(identity.path))}


def shown(before: str, after: str, path: str) -> dict[str, Any]:
    """Return the changed file, and a diff of public keys, never of private keys."""
    after = f"{after}\n" if after else "ssh-ed25519, to be generated\n"
    return {
        "changes": {"file": [path]},
        "diff": diff(f"public key of {path}", f"{before}\n" if before else "", after),
    }


class IdentityFile:
    """The private key file."""

    def __init__(self, path: str, entry: pwd.struct_passwd, comment: str) -> None:
        self.path = Path(path)
        self.entry = entry
        self.comment = comment

    def public(self) -> str:
        """Derive the public key from the private key, because a .pub file could differ. Return "" if the private key is
        not usable."""
        if not self.path.is_file():
            return ""
        said = run("ssh-keygen", "-y", "-P", "", "-f", str(self.path))
        words = said.stdout.split()
        return " ".join(words[:2]) if said.returncode == 0 and words[:1] == ["ssh-ed25519"] else ""

    def is_kept_well(self) -> bool:
        status = self.path.stat()
        return status.st_uid == self.entry.pw_uid and stat.S_IMODE(status.st_mode) == 0o600

    def keep_well(self) -> None:
        self.path.chmod(0o600)
        os.chown(self.path, self.entry.pw_uid, self.entry.pw_gid)

    def make(self) -> None:
        """Create the key atomically. The folder belongs to root, so other users cannot place links in it."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=".new-") as folder:
            new = Path(folder) / self.path.name
            made = run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.comment, "-f", str(new))
            if made.returncode != 0:
                raise RefusedError(f"ssh-keygen cannot create {self.path}: {made.stderr.strip()}")
            os.chown(new, self.entry.pw_uid, self.entry.pw_gid)
            new.replace(self.path)
