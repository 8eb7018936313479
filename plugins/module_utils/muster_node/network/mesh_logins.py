"""Log in to peers as the training user, and cache successful logins.

A successful login is stored with a digest of everything that the login depends on at both ends (see mesh_ways). A
different digest invalidates the cached login.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from ansible.module_utils.muster.network import ssh_mesh

from ..tools import files
from ..tools.run import run

if TYPE_CHECKING:
    import pwd
    from collections.abc import Mapping, Sequence

# sshd allows 10 unauthenticated connections by default (MaxStartups), and all nodes connect at the same time.
AT_ONCE = 6
TRIES = 4
TIMEOUT = 30
MOST = 64_000  # bytes of what a login prints
MOST_MEMORY = 1_000_000  # bytes
# Shared connections from the user's settings must not replace a real login.
OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ControlMaster=no", "ControlPath=none", "ClearAllForwardings=yes")


def attempt(entry: pwd.struct_passwd, peer: ssh_mesh.MeshMember) -> ssh_mesh.LoginAttempt:
    argv = ["ssh", "-n", "-T", *(f"-o{option}" for option in OPTIONS), peer.name, "hostname"]
    names = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    done = run(*argv, seconds=TIMEOUT, env={"PATH": os.defpath, "LC_ALL": "C", **names}, user=entry, most=MOST)
    if done.code is None:
        return ssh_mesh.LoginAttempt(peer, 255, f"timed out after {TIMEOUT} s" if done.late else done.why, "")
    lines = done.text.split()
    # nologin shells print their message to standard output.
    said = done.aside if done.code == 0 else f"{done.aside}\n{done.text}"
    return ssh_mesh.LoginAttempt(peer, done.code, said, lines[-1] if lines else "")


def log_in(entry: pwd.struct_passwd, peer: ssh_mesh.MeshMember) -> ssh_mesh.LoginAttempt:
    for number in range(1, TRIES):
        tried = attempt(entry, peer)
        if not ssh_mesh.passing(tried):
            return tried
        time.sleep(0.5 * number)
    return attempt(entry, peer)


def log_in_on(entry: pwd.struct_passwd, peers: Sequence[ssh_mesh.MeshMember]) -> list[ssh_mesh.LoginAttempt]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda peer: log_in(entry, peer), peers))


def remembered(path: str) -> dict[str, str]:
    """Return {peer: digest of the last successful login}; {} if the file is missing."""
    with suppress(OSError, ValueError):
        found = json.loads(files.read(path, most=MOST_MEMORY, owner=os.geteuid()))
        if isinstance(found, dict):
            return {str(peer): str(digest) for peer, digest in found.items()}
    return {}


def remember(path: str, proved: Mapping[str, str]) -> None:
    if remembered(path) != dict(proved):
        files.replace(path, json.dumps(proved, sort_keys=True).encode(), mode=0o600)
