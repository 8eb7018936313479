"""Shared folders on this node: looked at, and mounted where they are not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.shared_data.plan import MountPlan, make_plan
from ansible.module_utils.muster.shared_data.request import faults, mounts_of
from ansible.module_utils.muster.shared_data.units import SECONDS, unit_name
from ansible.module_utils.muster.verdict.commands import playbook, shell

from ..packages.apt import install
from ..tools import files, trust
from ..tools.result import TaskRefusedError, diff, refuse
from ..tools.run import failure, run
from .answering import silence
from .look import observe
from .mounted import mounted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible.module_utils.muster.shared_data.request import Mount

FIX = f"To change it, run {playbook('site.yml', tags='network', shared_data_mode='manage')}"
SYSTEMCTL_SECONDS = 60.0 + SECONDS
OPEN = 0o1777


def provide(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Do what differs, unless this is a check. params: the options of library/shared_data.py."""
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
    return {"changed": plan.needed, "differences": plan.differences, "diff": shown}


def unsafe(paths: Iterable[str]) -> list[str]:
    """Folders whose place others could lead elsewhere: root makes them, and mounts over them, by name."""
    found = {path: trust.foreign_writer(str(Path(path).parent)) for path in paths}
    return [
        f"{path} is not safe to use: {why}. Choose one below folders of root's" for path, why in found.items() if why
    ]


def silent(mount: Mount) -> str:
    """Have it mounted by looking at it; return why it is not."""
    why, _ = silence(mount.path, SECONDS + 5.0)
    if not why:
        return ""
    journal = shell("sudo journalctl -b --no-pager -u {unit}", unit=unit_name(mount.path, "mount"))
    return f"{mount.source} does not come up on {mount.path}: {why}. What systemd says of it: {journal}"


def act(plan: MountPlan, scratch: str) -> None:
    if plan.packages:
        done = install(*plan.packages)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[-300:]
            raise TaskRefusedError(f"{', '.join(plan.packages)} cannot be installed: {said}")
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
    """End a mount that nobody uses, and what mounts it.

    Not by stopping the mount's unit: systemd would first stop every unit that works in the folder, such as a launch.
    Nor the automount first: its end takes a mount away lazily, under whoever uses it.
    """
    if any(one.path == path and one.type != "autofs" for one in mounted()):
        failed = failure(("umount", path), run("umount", path, seconds=SYSTEMCTL_SECONDS))
        if failed:
            raise TaskRefusedError(
                f"{path} is in use, and stays as it is ({failed})",
                f"See who uses it: {shell('sudo fuser -vm {path}', path=path)}",
            )
    _must("systemctl", "stop", unit_name(path, "automount"))


def _must(*argv: str) -> None:
    failed = failure(argv, run(*argv, seconds=SYSTEMCTL_SECONDS))
    if failed:
        raise TaskRefusedError(failed)
