"""Build apt requests that give all parts of the driver the same version, and check what apt would do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..packages.repositories import STATUS, releases, versions
from .family import is_obsolete, is_part, is_versioned, keeps_step, named_branch, upstream

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DISTRIBUTIONS = ("Ubuntu", "Debian")
MOST_LINES = 8


@dataclass(frozen=True)
class PackageNeed:
    """names: requested packages. pins: pinning packages that stay installed. keep: the version to use, if it is already
    decided.

    installed: installed packages of the stack with their versions. offered: versions of installed and requested
    packages in the requested source, newest first. again: whether to reinstall installed packages.
    """

    names: tuple[str, ...]
    source: str
    branch: int
    installed: Mapping[str, str]
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pins: tuple[str, ...] = ()
    keep: str = ""
    again: bool = False

    def fits(self, version: str) -> bool:
        return version == self.keep if self.keep else version.partition(".")[0] == str(self.branch)


@dataclass(frozen=True)
class AptSimulation:
    """What apt would do: packages that it installs (versions by name) and removes, or its errors.

    configures: packages that are unpacked but that dpkg has not configured.
    """

    installs: Mapping[str, str] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    configures: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def does_nothing(self) -> bool:
        return not (self.installs or self.removes or self.configures)


def apt_words(need: PackageNeed, late: Collection[str] = ()) -> list[str]:
    """Return the arguments for `apt-get install`: requested packages, packages to change, and "NAME-" to remove a
    package.

    Packages with the branch in their name are installed or removed as dependencies of the requested ones, because two
    module flavours exclude each other. late: such packages that a simulation left at the old version.

    Two sources can have packages with equal names, and equal files in packages with different names. apt does not
    detect these conflicts. Therefore the arguments contain versions, and packages that the requested source does
    not have are removed.
    """
    moves, goes = [], []
    for name, version in need.installed.items():
        if name in need.names or name in need.pins:
            continue
        part = keeps_step(name, version, need.source)
        stays = upstream(version) == need.keep and version in need.offered.get(name, ())
        if is_obsolete(name, need.branch) or (part and not stays and not _fitting(name, need)):
            goes.append(f"{name}-")
        elif part and (need.again or not stays) and (need.again or name in late or not named_branch(name)):
            moves.append(name)
    words = [_at(name, need) for name in (*need.names, *moves)]
    return [*(["--reinstall"] if need.again else []), *words, *goes]


def newest_common(need: PackageNeed) -> str:
    """Return the newest version in which the source offers every requested package; "" if there is none.

    Shortly after a release, some packages may be available before others. If no version were given, apt would mix
    versions.
    """
    per_package = [
        [upstream(version) for version in need.offered.get(name, ()) if need.fits(upstream(version))]
        for name in need.names
        if is_versioned(name, need.source)
    ]
    first, *others = per_package or [[]]
    return next((version for version in first if all(version in each for each in others)), "")


def unmet(need: PackageNeed) -> list[str]:
    """Return the requested packages of which the source has no suitable version, with the available versions."""
    return [
        f"{name} is available in {', '.join(need.offered[name])}" if need.offered.get(name) else f"no {name}"
        for name in need.names
        if is_versioned(name, need.source) and not _fitting(name, need)
    ]


def _fitting(name: str, need: PackageNeed) -> str:
    return next((version for version in need.offered.get(name, ()) if need.fits(upstream(version))), "")


def _at(name: str, need: PackageNeed) -> str:
    version = _fitting(name, need) if is_versioned(name, need.source) else ""
    return f"{name}={version}" if version else name


def offers(files: str, packages: str, source: str) -> dict[str, tuple[str, ...]]:
    """Return the versions of packages in the source. files: output of `apt-cache policy`. packages: its output for
    these packages.

    A mirror keeps the fields origin and label. A repository without these fields, such as a local folder of packages,
    is accepted for any source.
    """
    foreign = {STATUS}
    for place, fields in releases(files).items():
        nvidia = fields.get("l", "").startswith("NVIDIA")
        distribution = fields.get("o") in DISTRIBUTIONS
        if (source == "nvidia" and distribution) or (source != "nvidia" and nvidia):
            foreign.add(place)
    found = {}
    for name, rows in versions(packages).items():
        if had := tuple(version for version, places in rows.items() if set(places) - foreign):
            found[name] = had
    return found


def parse(out: str, err: str, code: int) -> AptSimulation:
    """Parse the output of `apt-get --simulate`."""
    if code:
        lines = [line[3:].strip() for line in err.splitlines() if line.startswith("E: ")]
        # Before its error, apt prints unmet dependencies on standard output.
        said = [" ".join(line.split()) for line in out.splitlines() if re.match(r" \S+ : |   +\S", line)]
        return AptSimulation(errors=(*said, *lines) or (f"apt-get failed with exit status {code}",))
    installs = dict(re.findall(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+)", out, re.MULTILINE))
    removes = tuple(re.findall(r"^(?:Remv|Purg) (\S+)", out, re.MULTILINE))
    configures = tuple(name for name in re.findall(r"^Conf (\S+)", out, re.MULTILINE) if name not in installs)
    return AptSimulation(installs, removes, configures)


def complaints(out: str) -> str:
    """Return the first error lines of apt, dpkg and dkms, because the first error is the cause.

    Without error lines, return the last lines.
    """
    lines = [line.strip() for line in out.splitlines() if line.strip() and not line.startswith("(Reading database")]
    errors = [
        line
        for line in lines
        if re.search(r"\berror\b|^E: |trying to overwrite|No space|^Consult ", line, re.IGNORECASE)
    ]
    return "\n".join(errors[:MOST_LINES] or lines[-MOST_LINES:])


def fix_with(said: str) -> str:
    """Return the fix for an error reported by apt."""
    if re.search(r"404 +Not Found|Hash Sum mismatch|unexpected size", said):
        return (
            "The mirror is inconsistent: files in its package lists are missing. Wait for its next update and run this "
            "again, or set another mirror (cluster_mirror)"
        )
    return "Fix the error and run this again; the installation then continues"


def stragglers(need: PackageNeed, answer: AptSimulation) -> list[str]:
    """Return the parts of the driver that apt would leave at a different version."""
    return [name for name, version in _parts_after(need, answer).items() if not need.fits(version)]


def _parts_after(need: PackageNeed, answer: AptSimulation) -> dict[str, str]:
    after = {name: version for name, version in need.installed.items() if name not in answer.removes}
    after.update(answer.installs)
    return {name: upstream(version) for name, version in after.items() if keeps_step(name, version, need.source)}


def refusals(need: PackageNeed, answer: AptSimulation) -> list[str]:
    """Return why apt must not run: it would remove other software, mix versions, or install another kernel."""
    others = [name for name in answer.removes if not is_part(name)]
    found = []
    kernels = [name for name in answer.installs if _is_foreign_kernel(name, need)]
    if kernels:
        found.append(
            f"apt would install {', '.join(kernels)}, and the node would boot this kernel. To find the reason, run "
            f"apt-get --simulate install {' '.join(need.names)}"
        )
    if others:
        found.append(
            f"apt would remove {', '.join(others)}, because they depend on the old driver. Remove them first, or "
            "keep the installed driver (gpu_stack_driver)"
        )
    parts = _parts_after(need, answer)
    versions = sorted(set(parts.values()))
    if stragglers(need, answer) or len(versions) > 1:
        by_version = [f"{version} ({', '.join(_with(parts, version))})" for version in versions]
        found.append(
            f"apt would leave driver packages at versions other than {need.keep or f'{need.branch}.*'}: "
            f"{'; '.join(by_version)}"
        )
    return found


def _is_foreign_kernel(name: str, need: PackageNeed) -> bool:
    """Return whether a package is a kernel of a flavour that was not requested.

    apt may choose one, because the module packages of every kernel flavour also provide nvidia-dkms-*.
    """
    image = re.fullmatch(r"linux-image-(?:unsigned-)?\d[\d.]*-\d+-(.+)", name)
    return (
        image is not None
        and name not in need.installed
        and not any(f"-{image[1]}" in request for request in need.names)
    )


def _with(parts: Mapping[str, str], version: str) -> list[str]:
    return sorted(name for name, each in parts.items() if each == version)
