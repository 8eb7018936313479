"""What is to be done on a node so that the requested folders are there, and what stands against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..verdict.commands import shell
from .units import FOLDER, files_of, unit_name, where_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .request import Mount

# What a folder is that nothing is mounted on.
MISSING, EMPTY, FULL, OTHER = "missing", "empty", "full", "other"


@dataclass(frozen=True)
class On:
    """What is mounted on a path, the topmost first of all: source and type, as the kernel says them."""

    source: str
    type: str


@dataclass(frozen=True)
class MountsState:
    """ours: units of Muster's by their paths, with their text. mounted: by path, what lies there, the last on top.
    folders: by path, where nothing is mounted. fstab: by path, the source that a line of it names. active, enabled:
    automount units. helpers: types of file systems that can be mounted. scratch_bytes: of the file system on which the
    folder is, or will be. scratch_open: whether everybody may write into it, each their own."""

    ours: Mapping[str, str] = field(default_factory=dict)
    mounted: Mapping[str, Sequence[On]] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)
    fstab: Mapping[str, str] = field(default_factory=dict)
    active: Sequence[str] = ()
    enabled: Sequence[str] = ()
    helpers: Sequence[str] = ()
    scratch_bytes: int = 0
    scratch_open: bool = False


@dataclass
class MountPlan:
    """files: to write, by path. stop: folders whose mount is ended; remove: files. start: automount units
    to be enabled and started. make: folders. packages: to install first. differences: one sentence each."""

    problems: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    stop: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    make: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    scratch: bool = False

    @property
    def needed(self) -> bool:
        return bool(self.differences)


def make_plan(
    mounts: Sequence[Mount], seen: MountsState, packages: Mapping[str, str], scratch: str = "", scratch_bytes: int = 0
) -> MountPlan:
    """packages: by the type of a file system, which package mounts it."""
    plan = MountPlan()
    wanted: set[str] = set()
    for mount in mounts:
        if mount.path in seen.fstab:
            plan.problems += _of_site(mount, seen)
            continue
        wanted |= files_of(mount).keys()
        _mount(plan, mount, seen, packages)
    for path in sorted(seen.ours.keys() - wanted):
        plan.remove.append(path)
        if path.endswith(".automount") and (where := where_of(seen.ours[path])):
            plan.stop.append(where)
        plan.differences.append(f"{path} is there, and nobody asks for it any more")
    if scratch:
        _scratch(plan, scratch, scratch_bytes, seen)
    return plan


def _of_site(mount: Mount, seen: MountsState) -> Iterator[str]:
    """A folder that a line of fstab mounts stays the site's; it only has to be the same one."""
    if seen.fstab[mount.path] != mount.source:
        yield (
            f"its /etc/fstab mounts {seen.fstab[mount.path]} on {mount.path}, and not {mount.source}: take that line"
            " away, or correct shared_data_mounts"
        )


def _mount(plan: MountPlan, mount: Mount, seen: MountsState, packages: Mapping[str, str]) -> None:
    automount = unit_name(mount.path, "automount")
    on = [one for one in seen.mounted.get(mount.path, ()) if one.type != "autofs"]
    ours = f"{FOLDER}/{automount}" in seen.ours
    if on and not ours:
        plan.problems.append(
            f"{on[-1].source} is mounted on {mount.path} already, by somebody else:"
            f" {shell('sudo umount {path}', path=mount.path)}, or take it out of shared_data_mounts"
        )
        return
    there = seen.folders.get(mount.path, EMPTY)
    if there == FULL and not ours:
        plan.problems.append(
            f"{mount.path} has files in it, which would be hidden: move them elsewhere, or choose another path"
        )
        return
    if there == OTHER:
        plan.problems.append(f"{mount.path} is no folder: move it away, or choose another path")
        return
    if mount.type not in seen.helpers:
        package = packages.get(mount.type)
        if package is None:
            plan.problems.append(
                f"it cannot mount {mount.type} (there is no mount.{mount.type}): install what does, or correct the type"
            )
            return
        plan.packages.append(package)
        plan.differences.append(f"the package {package} is missing, for {mount.path}")
    if there == MISSING:
        plan.make.append(mount.path)
        plan.differences.append(f"{mount.path} is missing")
    changed = {path: text for path, text in files_of(mount).items() if seen.ours.get(path) != text}
    plan.files |= changed
    plan.differences += [f"{path} {'has other content' if path in seen.ours else 'is missing'}" for path in changed]
    if changed and ours:
        plan.stop.append(mount.path)
    if automount not in seen.enabled:
        plan.differences.append(f"{automount} is off at boot")
    elif automount not in seen.active:
        plan.differences.append(f"{automount} is not active")
    if changed or automount not in seen.enabled or automount not in seen.active:
        plan.start.append(automount)


def _scratch(plan: MountPlan, path: str, least: int, seen: MountsState) -> None:
    if seen.folders.get(path) == OTHER:
        plan.problems.append(f"{path} is no folder: move it away, or set shared_data_scratch elsewhere")
    elif not seen.scratch_open:
        plan.scratch = True
        what = "is missing" if seen.folders.get(path) == MISSING else "is not open to everybody (mode 1777)"
        plan.differences.append(f"{path} {what}")
    if seen.scratch_bytes < least:
        plan.problems.append(
            f"{path} lies on a file system of {seen.scratch_bytes // 10**9} GB, and {least // 10**9} GB are requested:"
            " mount a larger disk there, or correct shared_data_scratch_gb"
        )
