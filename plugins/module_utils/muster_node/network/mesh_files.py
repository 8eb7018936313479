"""Write the training user's SSH files for logins between the nodes."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.network import ssh_mesh
from ansible.module_utils.muster.verdict.commands import playbook

from ..tools import files
from ..tools.result import RefusedError, diff
from .mesh_ways import ways

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("authorized_keys", "config", ssh_mesh.KNOWN_HOSTS)
MOST = 4_000_000  # bytes of a file


@contextlib.contextmanager
def acting_as(entry: pwd.struct_passwd) -> Iterator[None]:
    """Access files as the user, because root has no rights on many file servers."""
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


class SshFolder:
    def __init__(self, entry: pwd.struct_passwd) -> None:
        self.entry = entry
        self.path = Path(entry.pw_dir) / ".ssh"

    def read(self, name: str) -> str:
        """Return the text of a file; "" if the file is missing. Invalid UTF-8 is preserved (surrogateescape)."""
        path = str(self.path / name)
        try:
            content: bytes = files.read(path, most=MOST, links=True, owner=self.entry.pw_uid)
        except FileNotFoundError:
            return ""
        except files.ForeignError as foreign:
            raise RefusedError(
                f"{path} {foreign.strerror} and was not changed:"
                f' sudo chown {self.entry.pw_name} {path}, or set ssh_mesh_mode to "off"'
            ) from None
        return content.decode("utf-8", "surrogateescape")

    def texts(self) -> dict[str, str]:
        return {name: self.read(name) for name in NAMES}

    def write(self, name: str, text: str) -> None:
        """Write a file atomically, keeping links and the file mode."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        content = text.encode("utf-8", "surrogateescape")
        files.replace(str(self.path / name), content, mode=0o600, keep=True, links=True)


def keep(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    user = params["user"]
    try:
        entry: pwd.struct_passwd | None = pwd.getpwnam(user)
    except KeyError:
        if not params["members"]:
            return {"changed": False, "strangers": [], "ways": {}, "diff": []}
        if not check:
            raise RefusedError(
                f"has no user {user}: run {playbook('playbooks/baseline.yml')}, or correct cluster_user, ssh_mesh_users"
            ) from None
        entry = None
    with acting_as(entry) if entry else contextlib.nullcontext():
        folder = SshFolder(entry) if entry else None
        before = folder.texts() if folder else dict.fromkeys(NAMES, "")
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
            # authorized_keys is written last, when the other files are complete.
            for name in reversed(NAMES):
                if name in changed and after[name]:
                    folder.write(name, after[name])
                elif name in changed:
                    files.remove(str(folder.path / name))
    return {
        "ways": ways(user, params["address"], params["identity"], after) if entry and members and not check else {},
        "changed": bool(changed),
        "strangers": list(wanted.strangers),
        "diff": [diff(f"~{user}/.ssh/{name}", before[name], after[name]) for name in changed],
    }
