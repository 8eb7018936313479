"""What apt is asked for so that every part of the driver has one version, and what it may do for that."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .family import is_obsolete, is_part, is_versioned, keeps_step, upstream

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Need:
    """names: packages to have. pins: those of them that are there already. keep: a version, where one is decided.

    installed: packages of the stack and their versions. offered: the versions of them that apt knows of. again: whether
    what is there is to be unpacked once more.
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
class Answer:
    """What apt would do: name and version of what it installs, names of what it removes; or its errors."""

    installs: Mapping[str, str] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def does_nothing(self) -> bool:
        return not (self.installs or self.removes)


def request(need: Need) -> list[str]:
    """Return the words after `apt-get install`: what to have, what to move along, and, with a -, what has to go."""
    moves, goes = [], []
    for name, version in need.installed.items():
        if name in need.names or name in need.pins:
            continue
        part = keeps_step(name, version, need.source)
        stays = need.keep and upstream(version) == need.keep
        # The names of a driver change between branches: one of a newer name has no older version, and must go.
        offered = any(need.fits(upstream(each)) for each in need.offered.get(name, ()))
        if is_obsolete(name, need.branch) or (part and not stays and not offered):
            goes.append(f"{name}-")
        elif part and (need.again or not stays):
            moves.append(name)
    return [*(["--reinstall"] if need.again else []), *(_at(name, need) for name in (*need.names, *moves)), *goes]


def _at(name: str, need: Need) -> str:
    return f"{name}={need.keep}-*" if need.keep and is_versioned(name, need.source) else name


def parse_offers(out: str) -> dict[str, tuple[str, ...]]:
    """Read what `apt-cache madison` printed: name, version and source of each package that there is."""
    found: dict[str, tuple[str, ...]] = {}
    for line in out.splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) == 3:
            found[words[0]] = (*found.get(words[0], ()), words[1])
    return found


def parse(out: str, err: str, code: int) -> Answer:
    """Read what `apt-get --simulate` printed."""
    if code:
        lines = [line[3:].strip() for line in err.splitlines() if line.startswith("E: ")]
        # Before its error apt tells on standard output what does not fit what.
        told = [" ".join(line.split()) for line in out.splitlines() if re.match(r" \S+ : |   +\S", line)]
        return Answer(errors=(*told, *lines) or (f"apt-get ended with {code}",))
    installs = dict(re.findall(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+)", out, re.MULTILINE))
    removes = tuple(re.findall(r"^(?:Remv|Purg) (\S+)", out, re.MULTILINE))
    return Answer(installs, removes)


def refusals(need: Need, answer: Answer) -> list[str]:
    """Say why apt may not do it: it would take away what belongs to others, or leave parts at several versions."""
    others = [name for name in answer.removes if not is_part(name)]
    found = []
    if others:
        found.append(
            f"apt would remove {', '.join(others)}, which depend on what has to go: remove them first, or keep "
            "the driver that is there (gpu_stack_driver)"
        )
    after = {name: version for name, version in need.installed.items() if name not in answer.removes}
    after.update(answer.installs)
    parts = {name: upstream(version) for name, version in after.items() if keeps_step(name, version, need.source)}
    wrong = {name: version for name, version in parts.items() if not need.fits(version)}
    versions = sorted(set(parts.values()))
    if wrong or len(versions) > 1:
        by_version = [f"{version} of {', '.join(_with(parts, version))}" for version in versions]
        found.append(
            f"apt would leave parts of the driver at other versions than {need.keep or f'one of {need.branch}'}: "
            f"{'; '.join(by_version)}"
        )
    return found


def _with(parts: Mapping[str, str], version: str) -> list[str]:
    return sorted(name for name, each in parts.items() if each == version)
