"""Inspect shared folders on this node without blocking on a server, and mount missing folders."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.shared_data.plan import (
    EMPTY,
    FULL,
    MISSING,
    OTHER,
    MountPlan,
    MountsState,
    On,
    make_plan,
)
from ansible.module_utils.muster.shared_data.request import faults, mounts_of
from ansible.module_utils.muster.shared_data.units import FOLDER, SECONDS, is_ours, unit_name
from ansible.module_utils.muster.verdict.commands import playbook, shell

from ..packages.apt import install
from ..tools import files, trust
from ..tools.disk import disk_facts
from ..tools.result import RefusedError, diff, refuse
from ..tools.run import failure, names, run
from .answering import silence
from .mounted import mounted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ansible.module_utils.muster.shared_data.request import Mount

FIX = f"To change it, run {playbook('site.yml', tags='network', shared_data_mode='manage')}"
SYSTEMCTL_SECONDS = 60.0 + SECONDS
OPEN = 0o1777
LOOK_SECONDS = 20.0
HELPERS = ("/sbin", "/usr/sbin", "/usr/bin")
FSTAB = "/etc/fstab"


def provide(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Apply the changes, unless in check mode. params: options of library/shared_data.py."""
    refuse([f"{what}. {fix}" for what, fix in faults(params["mounts"], params["scratch"])])
    mounts = mounts_of(params["mounts"])
    refuse(unsafe([*(mount.path for mount in mounts), *filter(None, [params["scratch"]])]))
    seen = observe(mounts, params["scratch"])
    plan = make_plan(mounts, seen, params["packages"], params["scratch"], params["scratch_gb"] * 10**9)
    refuse(plan.problems, plan.differences if params["mode"] == "verify" else (), FIX)
    shown = [diff(path, seen.ours.get(path, ""), text) for path, text in plan.files.items()]
    shown += [diff(path, seen.ours[path], "") for path in plan.remove]
    if plan.needed and not check:
        act(plan, params["scratch"])
    if not check:
        refuse([sentence for mount in mounts if (sentence := silent(mount))])
    stopped = [unit_name(path, "automount") for path in plan.stop]
    changes = {"package": plan.packages, "unit": [*plan.start, *stopped], "file": plan.make}
    return {"changed": plan.needed, "differences": plan.differences, "changes": changes, "diff": shown}


def unsafe(paths: Iterable[str]) -> list[str]:
    """Return the unsafe folders. Root mounts on folders by name, so other users must not control the parent folders."""
    found = {path: trust.foreign_writer(str(Path(path).parent)) for path in paths}
    return [f"{path} is not safe to use: {why}. Choose a folder of root" for path, why in found.items() if why]


def silent(mount: Mount) -> str:
    """Trigger the mount. Return the reason if it fails, else ""."""
    why, _ = silence(mount.path, SECONDS + 5.0)
    if not why:
        return ""
    journal = shell("sudo journalctl -b --no-pager -u {unit}", unit=unit_name(mount.path, "mount"))
    return f"{mount.source} cannot be mounted on {mount.path}: {why}. systemd's log: {journal}"


def act(plan: MountPlan, scratch: str) -> None:
    if plan.packages:
        done = install(*plan.packages)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[-300:]
            raise RefusedError(f"{', '.join(plan.packages)} cannot be installed: {said}")
    for path in plan.stop:
        _end(path)
    for path in plan.remove:
        if path.endswith(".automount"):
            _must("systemctl", "disable", path.rpartition("/")[2])
        files.remove(path)
    for path in plan.make:
        Path(path).mkdir(parents=True, exist_ok=True)
    if plan.scratch:
        Path(scratch).mkdir(parents=True, exist_ok=True)
        Path(scratch).chmod(OPEN)
    for path, text in plan.files.items():
        files.replace(path, text.encode(), mode=0o644, owner=(0, 0))
    if plan.files or plan.remove:
        _must("systemctl", "daemon-reload")
    if plan.start:
        _must("systemctl", "enable", "--now", *plan.start)


def _end(path: str) -> None:
    """Unmount an unused folder, then stop its automount.

    Do not stop the mount unit, because systemd would first stop all units that use the folder, for example a launch. Do
    not stop the automount first, because it would unmount lazily while the folder is in use.
    """
    if any(one.path == path and one.type != "autofs" for one in mounted()):
        failed = failure(("umount", path), run("umount", path, seconds=SYSTEMCTL_SECONDS))
        if failed:
            raise RefusedError(
                f"{path} is in use and stays mounted ({failed})",
                f"Find its users: {shell('sudo fuser -vm {path}', path=path)}",
            )
    _must("systemctl", "stop", unit_name(path, "automount"))


def _must(*argv: str) -> None:
    failed = failure(argv, run(*argv, seconds=SYSTEMCTL_SECONDS))
    if failed:
        raise RefusedError(failed)


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
    """Return the state of a path on which nothing is mounted."""
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
    """Return the units in one of these states."""
    if not units:
        return []
    said = run("systemctl", verb, *units, seconds=LOOK_SECONDS).text.split()
    return [unit for unit, state in zip(units, said, strict=False) if state in good]


def can_mount(kind: str) -> bool:
    """Return whether mount(8) has a helper for this type, or the kernel mounts the type without a helper. Type none is
    a bind mount."""
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
