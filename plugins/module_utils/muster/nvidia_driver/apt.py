"""What apt is asked for so that every part of the driver has one version, and what it may do for that."""

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
    """names: packages to have. pins: those of them that are there already. keep: a version, where one is decided.

    installed: packages of the stack and their versions. offered: the versions that the requested source has of them
    and of what is requested, the newest first. again: whether what is there is to be unpacked once more.
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
    """What apt would do: name and version of what it installs, names of what it removes; or its errors.

    configures: packages that are there, and that dpkg did not finish.
    """

    installs: Mapping[str, str] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    configures: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def does_nothing(self) -> bool:
        return not (self.installs or self.removes or self.configures)


def apt_words(need: PackageNeed, late: Collection[str] = ()) -> list[str]:
    """Return the words after `apt-get install`: what to have, what to move along, and, with a -, what has to go.

    What carries the branch in its name comes with what is requested, or goes with it (of two flavours one excludes the
    other). late: those of them of which apt has shown that it leaves them behind.

    Two sources have packages of the same names, and of the same files under different names, and apt sees no conflict
    in that. So versions are named, and what the requested source does not have goes.
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
    """Return the newest version of which the source has every requested package; "" for none.

    Around a release it may have some packages before the others, and of a branch alone apt would take what is newest.
    """
    per_package = [
        [upstream(version) for version in need.offered.get(name, ()) if need.fits(upstream(version))]
        for name in need.names
        if is_versioned(name, need.source)
    ]
    first, *others = per_package or [[]]
    return next((version for version in first if all(version in each for each in others)), "")


def unmet(need: PackageNeed) -> list[str]:
    """Return the requested packages of which the source has no version that fits, with those that it has."""
    return [
        f"of {name} it has {', '.join(need.offered[name])}" if need.offered.get(name) else f"it has no {name}"
        for name in need.names
        if is_versioned(name, need.source) and not _fitting(name, need)
    ]


def _fitting(name: str, need: PackageNeed) -> str:
    return next((version for version in need.offered.get(name, ()) if need.fits(upstream(version))), "")


def _at(name: str, need: PackageNeed) -> str:
    version = _fitting(name, need) if is_versioned(name, need.source) else ""
    return f"{name}={version}" if version else name


def offers(files: str, packages: str, source: str) -> dict[str, tuple[str, ...]]:
    """Read from `apt-cache policy`, and from the same of some packages, which versions of them the source has.

    A mirror keeps origin and label. What has neither, as a folder with packages, may be of any source.
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
    """Read what `apt-get --simulate` printed."""
    if code:
        lines = [line[3:].strip() for line in err.splitlines() if line.startswith("E: ")]
        # Before its error apt says on standard output what does not fit what.
        said = [" ".join(line.split()) for line in out.splitlines() if re.match(r" \S+ : |   +\S", line)]
        return AptSimulation(errors=(*said, *lines) or (f"apt-get ended with {code}",))
    installs = dict(re.findall(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+)", out, re.MULTILINE))
    removes = tuple(re.findall(r"^(?:Remv|Purg) (\S+)", out, re.MULTILINE))
    configures = tuple(name for name in re.findall(r"^Conf (\S+)", out, re.MULTILINE) if name not in installs)
    return AptSimulation(installs, removes, configures)


def complaints(out: str) -> str:
    """Return what apt, dpkg and dkms said of errors, the first one first: it is the cause; else their last words."""
    lines = [line.strip() for line in out.splitlines() if line.strip() and not line.startswith("(Reading database")]
    errors = [
        line
        for line in lines
        if re.search(r"\berror\b|^E: |trying to overwrite|No space|^Consult ", line, re.IGNORECASE)
    ]
    return "\n".join(errors[:MOST_LINES] or lines[-MOST_LINES:])


def fix_with(said: str) -> str:
    """Return what to do about what apt said."""
    if re.search(r"404 +Not Found|Hash Sum mismatch|unexpected size", said):
        return (
            "The mirror does not have what its own lists name: run this again when it is whole, or take another one "
            "(cluster_mirror)"
        )
    return "Once that is fixed, running this again goes on from there"


def stragglers(need: PackageNeed, answer: AptSimulation) -> list[str]:
    """Return the parts that apt would leave at another version."""
    return [name for name, version in _parts_after(need, answer).items() if not need.fits(version)]


def _parts_after(need: PackageNeed, answer: AptSimulation) -> dict[str, str]:
    after = {name: version for name, version in need.installed.items() if name not in answer.removes}
    after.update(answer.installs)
    return {name: upstream(version) for name, version in after.items() if keeps_step(name, version, need.source)}


def refusals(need: PackageNeed, answer: AptSimulation) -> list[str]:
    """Say why apt may not do it: it would remove what is others', leave several versions, or bring another kernel."""
    others = [name for name in answer.removes if not is_part(name)]
    found = []
    kernels = [name for name in answer.installs if _is_foreign_kernel(name, need)]
    if kernels:
        found.append(
            f"apt would bring {', '.join(kernels)}, with which the node would start from then on: see with "
            f"apt-get --simulate install {' '.join(need.names)} why it cannot have what was asked for"
        )
    if others:
        found.append(
            f"apt would remove {', '.join(others)}, which depend on what has to go: remove them first, or keep "
            "the driver that is there (gpu_stack_driver)"
        )
    parts = _parts_after(need, answer)
    versions = sorted(set(parts.values()))
    if stragglers(need, answer) or len(versions) > 1:
        by_version = [f"{version} of {', '.join(_with(parts, version))}" for version in versions]
        found.append(
            f"apt would leave parts of the driver at other versions than {need.keep or f'one of {need.branch}'}: "
            f"{'; '.join(by_version)}"
        )
    return found


def _is_foreign_kernel(name: str, need: PackageNeed) -> bool:
    """Whether a package is a kernel of a flavour that nothing requested is for: modules of any provide those of all."""
    image = re.fullmatch(r"linux-image-(?:unsigned-)?\d[\d.]*-\d+-(.+)", name)
    return (
        image is not None
        and name not in need.installed
        and not any(f"-{image[1]}" in request for request in need.names)
    )


def _with(parts: Mapping[str, str], version: str) -> list[str]:
    return sorted(name for name, each in parts.items() if each == version)
