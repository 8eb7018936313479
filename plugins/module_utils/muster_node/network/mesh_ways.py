"""Compute digests of everything that logins between nodes depend on, for outgoing and incoming logins (out, in).

The firewall is not included, because every run checks the firewall.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools import files
from .account import account_of
from .sshd import in_force

if TYPE_CHECKING:
    from collections.abc import Mapping

BOOT = "/proc/sys/kernel/random/boot_id"
# Files that the client and the server use besides the user's files. Folders include their contents.
CLIENT = ("/usr/bin/ssh", "/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d")
SERVER = ("/etc/pam.d", "/etc/security", "/etc/nologin", "/etc/hosts.allow", "/etc/hosts.deny", "/usr/sbin/sshd")


def ways(user: str, address: str, identity: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the digests {out, in}. texts: {file name in ~/.ssh: content}."""
    entry = pwd.getpwnam(user)
    account = account_of(entry)
    both = [files.text(BOOT), list(entry)[2:], list(account.groups)]
    ssh = f"{entry.pw_dir}/.ssh"
    # ssh reads the public key from a file beside the key, if present.
    keys = [stamp(f"{identity}{end}") for end in ("", ".pub", "-cert.pub")]
    client = [keys, texts["config"], texts["muster_known_hosts"], *map(stamp, CLIENT)]
    server = [os.uname().nodename, texts["authorized_keys"], account.locked, account.expired, sorted(account.loose)]
    server += [in_force(user, address), *(stamp(path, ids_alone=True) for path in (entry.pw_dir, ssh))]
    server += [stamp(f"{ssh}/authorized_keys", ids_alone=True), *map(stamp, SERVER)]
    return {"out": digest([both, client]), "in": digest([both, server])}


def stamp(path: str, *, ids_alone: bool = False) -> list[Any]:
    """Return metadata that changes whenever a file or the files in a folder change. Users cannot set the ctime.

    ids_alone: return only owner and mode, for folders that users write to.
    """
    try:
        seen = Path(path).stat()
    except OSError as problem:
        return [problem.errno]
    own: list[Any] = [seen.st_uid, seen.st_gid, seen.st_mode]
    if ids_alone:
        return own
    own += [seen.st_ino, seen.st_size, seen.st_ctime_ns]
    with suppress(OSError):
        own += [[below.name, *stamp(str(below))] for below in sorted(Path(path).iterdir())]
    return own


def digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()
