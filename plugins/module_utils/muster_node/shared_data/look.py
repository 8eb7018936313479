"""What there is of shared data on this node. Nothing is asked that waits for a server."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.muster.shared_data.plan import EMPTY, FULL, MISSING, OTHER, MountsState, On
from ansible.module_utils.muster.shared_data.units import FOLDER, is_ours, unit_name

from ..tools import files
from ..tools.disk import disk_facts
from ..tools.run import names, run
from .mounted import mounted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ansible.module_utils.muster.shared_data.request import Mount

SECONDS = 20.0
HELPERS = ("/sbin", "/usr/sbin", "/usr/bin")
FSTAB = "/etc/fstab"


def observe(mounts: Sequence[Mount], scratch: str) -> MountsState:
    there: dict[str, list[On]] = {}
    for one in mounted():
        there.setdefault(one.path, []).append(On(one.source, one.type))
    ours = our_units()
    automounts = [unit_name(mount.path, "automount") for mount in mounts]
    return MountsState(
        ours=ours,
        mounted={path: on for path, on in there.items() if path in {mount.path for mount in mounts}},
        folders={
            path: folder(path) for path in (*(mount.path for mount in mounts), scratch) if path and path not in there
        },
        fstab=fstab(),
        active=states("is-active", automounts, ("active",)),
        enabled=states("is-enabled", automounts, ("enabled",)),
        helpers=[kind for kind in dict.fromkeys(mount.type for mount in mounts) if can_mount(kind)],
        scratch_bytes=disk_facts(scratch)["total"] if scratch else 0,
        scratch_open=is_open(scratch) if scratch else False,
    )


def our_units() -> dict[str, str]:
    found = {}
    for name in names(FOLDER):
        if name.endswith((".mount", ".automount")):
            path = f"{FOLDER}/{name}"
            text = files.text(path)
            if text is not None and is_ours(text):
                found[path] = text
    return found


def folder(path: str) -> str:
    """What is there, where nothing is mounted."""
    found: str = OTHER
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            with os.scandir(path) as entries:
                found = EMPTY if next(entries, None) is None else FULL
    except FileNotFoundError:
        found = MISSING
    except OSError:
        pass
    return found


def fstab() -> dict[str, str]:
    found = {}
    for line in (files.text(FSTAB, links=True) or "").splitlines():
        fields = line.split()
        if len(fields) > 2 and not fields[0].startswith("#"):
            found[fields[1].rstrip("/") or "/"] = fields[0]
    return found


def states(verb: str, units: Sequence[str], good: Iterable[str]) -> list[str]:
    """Which of these units are so."""
    if not units:
        return []
    said = run("systemctl", verb, *units, seconds=SECONDS).text.split()
    return [unit for unit, state in zip(units, said, strict=False) if state in good]


def can_mount(kind: str) -> bool:
    """Whether mount(8) finds its helper, or the kernel mounts such a file system without one (none: a bind)."""
    if kind == "none":
        return True
    if any(Path(place, f"mount.{kind}").exists() for place in HELPERS):
        return True
    kernel = (files.text("/proc/filesystems", links=True) or "").split()
    return kind in kernel and not kind.startswith(("nfs", "cifs", "smb", "fuse"))


def is_open(path: str) -> bool:
    try:
        seen = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_mode & 0o1777 == 0o1777
