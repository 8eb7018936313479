"""Plan the mounts of the requested shared folders on a node, and report what prevents them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..verdict.commands import shell
from .units import FOLDER, files_of, unit_name, where_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .request import Mount

# States of a folder without a mount.
MISSING, EMPTY, FULL, OTHER = "missing", "empty", "full", "other"


@dataclass(frozen=True)
class On:
    """A mount, with source and type as reported by the kernel.

    In lists of mounts on one folder, the topmost mount is last.
    """

    source: str
    type: str


@dataclass(frozen=True)
class MountsState:
    """ours: texts of Muster's units, by path. mounted: mounts by path, the topmost last. folders: states of folders
    that are not mounted. fstab: sources in fstab, by path. active, enabled: automount units. helpers: file system types
    that can be mounted. scratch_bytes: size of the file system that contains the scratch folder. scratch_open: whether
    every user can create files in the scratch folder, and the sticky bit is set.
    """

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
    """files: contents to write, by path. stop: folders to unmount. remove: files to remove. start: automount units to
    enable and start. make: folders to create. packages: packages to install first. differences: one sentence each.
    """

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
    """Return the plan. packages: for each file system type, the package that provides the mount helper."""
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
        plan.differences.append(f"{path} is no longer requested")
    if scratch:
        _scratch(plan, scratch, scratch_bytes, seen)
    return plan


def _of_site(mount: Mount, seen: MountsState) -> Iterator[str]:
    """Check that a folder listed in fstab, which the site manages, has the requested source."""
    if seen.fstab[mount.path] != mount.source:
        yield (
            f"/etc/fstab mounts {seen.fstab[mount.path]} on {mount.path} instead of {mount.source}: remove that line"
            ", or correct shared_data_mounts"
        )


def _mount(plan: MountPlan, mount: Mount, seen: MountsState, packages: Mapping[str, str]) -> None:
    automount = unit_name(mount.path, "automount")
    on = [one for one in seen.mounted.get(mount.path, ()) if one.type != "autofs"]
    ours = f"{FOLDER}/{automount}" in seen.ours
    if on and not ours:
        plan.problems.append(
            f"{on[-1].source} is already mounted on {mount.path}, but not by Muster: run"
            f" {shell('sudo umount {path}', path=mount.path)}, or remove it from shared_data_mounts"
        )
        return
    there = seen.folders.get(mount.path, EMPTY)
    if there == FULL and not ours:
        plan.problems.append(
            f"{mount.path} contains files, which a mount would hide: move them, or choose another path"
        )
        return
    if there == OTHER:
        plan.problems.append(f"{mount.path} is not a folder: move it, or choose another path")
        return
    if mount.type not in seen.helpers:
        package = packages.get(mount.type)
        if package is None:
            plan.problems.append(
                f"{mount.type} has no mount helper (mount.{mount.type}): install one, or correct the type"
            )
            return
        plan.packages.append(package)
        plan.differences.append(f"package {package} is missing (required for {mount.path})")
    if there == MISSING:
        plan.make.append(mount.path)
        plan.differences.append(f"{mount.path} is missing")
    changed = {path: text for path, text in files_of(mount).items() if seen.ours.get(path) != text}
    plan.files |= changed
    plan.differences += [f"{path} {'has other content' if path in seen.ours else 'is missing'}" for path in changed]
    if changed and ours:
        plan.stop.append(mount.path)
    if automount not in seen.enabled:
        plan.differences.append(f"{automount} is not enabled")
    elif automount not in seen.active:
        plan.differences.append(f"{automount} is not active")
    if changed or automount not in seen.enabled or automount not in seen.active:
        plan.start.append(automount)


def _scratch(plan: MountPlan, path: str, least: int, seen: MountsState) -> None:
    if seen.folders.get(path) == OTHER:
        plan.problems.append(f"{path} is not a folder: move it, or set shared_data_scratch to another path")
    elif not seen.scratch_open:
        plan.scratch = True
        what = "is missing" if seen.folders.get(path) == MISSING else "is not writable for all users (mode 1777)"
        plan.differences.append(f"{path} {what}")
    if seen.scratch_bytes < least:
        plan.problems.append(
            f"{path} is on a file system of {seen.scratch_bytes // 10**9} GB, but {least // 10**9} GB are requested:"
            " mount a larger disk at that path, or correct shared_data_scratch_gb"
        )
