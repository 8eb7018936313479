"""Read the state of a node for a baseline request: packages, files, kernel settings, units, the account."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.baseline import model
from ansible.module_utils.muster.baseline.plan import installed_packages, unit_name

from ..tools.run import run

if TYPE_CHECKING:
    from collections.abc import Iterable

DPKG = Path("/var/lib/dpkg")
UNIT_PROPERTIES = (
    "Id,LoadState,ActiveState,UnitFileState,Job,ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic"
)


def observe(request: model.BaselineRequest) -> model.BaselineState:
    installed: dict[str, str] = {}
    held: frozenset[str] = frozenset()
    if request.packages or request.held or request.refused:
        with contextlib.suppress(FileNotFoundError):
            installed, held = installed_packages((DPKG / "status").read_text(errors="replace"))
    paths = [file.path for file in request.files] + ([request.sysctl_file] if request.sysctl_file else [])
    changed = {}
    for path in {*paths, *(path for unit in request.units for path in unit.restart_if_older_than)}:
        with contextlib.suppress(OSError):
            changed[path] = Path(path).stat().st_ctime
    values, read_only = look_at_sysctl(request.sysctl)
    asked = ",".join(request.manager)
    login = ",".join(request.login)
    home = look_at_home(request.user) if request.user else None
    return model.BaselineState(
        packages=installed,
        held=held,
        files={path: look_at_file(path) for path in paths},
        changed=changed,
        now=time.time(),
        sysctl=values,
        read_only=read_only,
        units=look_at_units(filter(None, (unit_name(unit, request, installed) for unit in request.units))),
        manager=(show("systemctl", "show", f"--property={asked}") or [{}])[0] if asked else {},
        login=(show("loginctl", "show-user", f"--property={login}") or [{}])[0] if login else {},
        account=look_at_account(request.user) if request.user else None,
        home=home,
        owners=look_at_owners(request.user, home) if request.user else {},
        capabilities=capabilities(),
        driver=Path("/sys/module/nvidia/version").exists(),
        dpkg_interrupted=dpkg_interrupted(),
    )


def show(*argv: str) -> list[dict[str, str]]:
    """Parse the output of `systemctl show` or `loginctl show-user`: blocks of name=value, separated by empty lines."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    blocks = done.stdout.strip().split("\n\n")
    return [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks if block]


def look_at_units(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Query all units with one call. Add the wall-clock start time with fractions, because systemd prints whole
    seconds."""
    asked = list(dict.fromkeys(names))
    if not asked:
        return {}
    booted = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    units: dict[str, dict[str, Any]] = {}
    # A name may be an alias, and the output has the real name; the order is that of the arguments.
    for name, block in zip(asked, show("systemctl", "show", f"--property={UNIT_PROPERTIES}", *asked), strict=False):
        micros = int(block.get("ExecMainStartTimestampMonotonic") or 0) or int(
            block.get("ActiveEnterTimestampMonotonic") or 0
        )
        units[name] = {**block, "Started": booted + micros / 1e6 if micros else 0.0}
    return units


def look_at_file(path: str) -> model.BaselineFileState | None:
    try:
        content = Path(path).read_bytes().decode("utf-8", "replace")
        there = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    try:
        owner = pwd.getpwuid(there.st_uid).pw_name
        group = grp.getgrgid(there.st_gid).gr_name
    except KeyError:
        owner, group = str(there.st_uid), str(there.st_gid)
    return model.BaselineFileState(content, f"{there.st_mode & 0o7777:04o}", owner, group)


def look_at_sysctl(keys: Iterable[model.SysctlKey]) -> tuple[dict[str, str | None], frozenset[str]]:
    values: dict[str, str | None] = {}
    read_only = set()
    for key in keys:
        values[key.key] = None
        with contextlib.suppress(OSError):
            values[key.key] = Path(key.path).read_text().strip()
            # os.access always allows root to write a file without write permission; it does detect a read-only mount.
            if not (os.access(key.path, os.W_OK) and Path(key.path).stat().st_mode & 0o200):
                read_only.add(key.key)
    return values, frozenset(read_only)


def look_at_account(user: model.BaselineAccount) -> model.AccountState | None:
    try:
        entry = pwd.getpwnam(user.name)
    except KeyError:
        return None
    groups = []
    for gid in os.getgrouplist(user.name, entry.pw_gid):
        with contextlib.suppress(KeyError):
            groups.append(grp.getgrgid(gid).gr_name)
    sudo = run("sudo", "-n", "-l", "-U", user.name).text if user.never_in else ""
    return model.AccountState(entry.pw_uid, entry.pw_gid, tuple(groups), sudo)


def look_at_home(user: model.BaselineAccount) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        there = os.lstat(user.home)
        return (there.st_uid, there.st_gid) if stat.S_ISDIR(there.st_mode) else None
    return None


def look_at_owners(user: model.BaselineAccount, home: tuple[int, int] | None) -> dict[str, str]:
    owners = {}
    for uid, gid in ((user.uid, user.gid), home or ("", "")):
        with contextlib.suppress(KeyError, ValueError):
            owners[f"uid {uid}"] = pwd.getpwuid(int(uid)).pw_name
        with contextlib.suppress(KeyError, ValueError):
            owners[f"gid {gid}"] = grp.getgrgid(int(gid)).gr_name
    return owners


def capabilities() -> int:
    """Return the bounding set of PID 1: the maximum capabilities of any process on the node."""
    for line in Path("/proc/1/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return int(line.split()[1], 16)
    return 0


def dpkg_interrupted() -> bool:
    """Return whether dpkg was interrupted and left its journal, which blocks apt."""
    with contextlib.suppress(OSError):
        return any(entry.name.isdigit() for entry in (DPKG / "updates").iterdir())
    return False
