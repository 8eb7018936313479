"""An environment of conda packages: what an environment.yml asks for, and the lock with every package's hash. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from .lock import LockError
from .request import EnvironmentRequest, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HEAD = """\
# The conda packages of an environment of this cluster, for each platform, and where each is from.
# Written by Muster, which refuses changes by hand. Commit this file with the inventory: Muster writes it, and no more.
# Where the inventory asks for something else, it is written anew.
"""
PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
MOST_PACKAGES = 2000
MOST_ASKED = 300
_CHANNEL = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)*|(https?|file)://[!-~]+", re.ASCII)
_SPEC = re.compile(r"[A-Za-z0-9_*][\w.*+:/~=<>!,|\[\]()'\" -]{0,200}", re.ASCII)
_TITLE = re.compile(r"# environment: (linux-[a-z0-9]{1,16})")
_ASKED = re.compile(r"# asked for: (.+)")
_DIGEST = re.compile(r"# digest: ([0-9a-f]{16})")
_FILE = re.compile(r"([a-z0-9_][a-z0-9_.-]*)-([A-Za-z0-9_.!+]+)-([A-Za-z0-9_.+]+)\.(conda|tar\.bz2)", re.ASCII)
_PACKAGE = re.compile(r"((?:https?|file)://[!-~]{1,1000}) sha256:([0-9a-f]{64})", re.ASCII)


class CondaError(ValueError):
    """The file cannot be used; the text says why, without the file's name and the full stop."""


@dataclass(frozen=True)
class CondaSpecs:
    """channels: in the order in which they are searched. specs: as conda writes them. cuda: what the driver can do, ""
    for no GPU."""

    channels: tuple[str, ...]
    specs: tuple[str, ...]
    cuda: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        cuda = [f"__cuda={self.cuda}"] if self.cuda else []
        return (*(f"channel {channel}" for channel in self.channels), *sorted(self.specs), *cuda)


@dataclass(frozen=True)
class CondaPackage:
    url: str
    sha256: str

    @property
    def file(self) -> str:
        """Its file's name, which is a name and no path. Raises LockError."""
        return self._named[0]

    @property
    def parts(self) -> tuple[str, str, str]:
        """Its name, version and build. Raises LockError."""
        found = self._named
        return found[1], found[2], found[3]

    @property
    def _named(self) -> re.Match[str]:
        found = _FILE.fullmatch(unquote(urlsplit(self.url).path.rpartition("/")[2]))
        if found is None:
            raise LockError(f"'{self.url[:200]}' is not the address of a conda package")
        return found

    def __str__(self) -> str:
        return f"{self.url} sha256:{self.sha256}"


@dataclass(frozen=True)
class CondaRequest(EnvironmentRequest):
    """folder: the environment's name, which follows from the lock."""

    folder: str = ""

    @property
    def name(self) -> str:
        return self.folder


@dataclass(frozen=True)
class CondaSection:
    platform: str
    asked: tuple[str, ...]
    packages: tuple[CondaPackage, ...]

    @property
    def title(self) -> str:
        return f"{self.platform}, conda"

    @property
    def digest(self) -> str:
        content = "\n".join([self.platform, *self.asked, *map(str, self.packages)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def versions(self) -> dict[str, str]:
        """Of each package its version and build, as an environment says them of itself."""
        return {name: f"{version}_{build}" for name, version, build in (package.parts for package in self.packages)}

    def as_dict(self) -> dict[str, Any]:
        packages = [{"url": one.url, "sha256": one.sha256} for one in self.packages]
        return {"platform": self.platform, "asked": list(self.asked), "packages": packages}

    def request(self) -> EnvironmentRequest:
        """The environment as the plan for a node takes it. It has a Python. Raises LockError."""
        found = {name: version for name, version, _ in (package.parts for package in self.packages)}
        python = found.get("python", "")
        if not re.fullmatch(r"\d+\.\d+[a-z0-9.]*", python):
            raise LockError("it has no package python, which an environment needs")
        pins = tuple(Requirement(name, version) for name, version in sorted(self.versions.items()))
        name = f"{python}-conda-py{'.'.join(python.split('.')[:2])}-{self.digest[:8]}"
        return CondaRequest("conda", 0, ".".join(python.split(".")[:2]), pins, folder=name)


def section_of(given: Mapping[str, Any]) -> CondaSection:
    packages = tuple(CondaPackage(one["url"], one["sha256"]) for one in given["packages"])
    return CondaSection(given["platform"], tuple(given["asked"]), packages)


def asked_of(content: Any, cuda: str = "") -> CondaSpecs:
    """What an environment.yml asks for, as it was read. Raises CondaError."""
    if not isinstance(content, dict):
        raise CondaError("it is no mapping with channels and dependencies")
    channels, specs = content.get("channels"), content.get("dependencies")
    if not isinstance(channels, list) or not channels:
        raise CondaError("it names no channels, and none is asked unless it does")
    if not isinstance(specs, list) or not specs:
        raise CondaError("it has no dependencies")
    if any(isinstance(spec, dict) for spec in specs):
        raise CondaError("it has packages for pip among its dependencies: take conda's, or make a second environment")
    for channel in channels:
        if not isinstance(channel, str) or not _CHANNEL.fullmatch(channel) or "@" in channel:
            raise CondaError(f"its channel {str(channel)[:100]!r} is neither a name nor an address without a password")
    for spec in specs:
        if not isinstance(spec, str) or not _SPEC.fullmatch(spec) or ", " in spec:
            raise CondaError(f"its dependency {str(spec)[:100]!r} is none as conda writes them")
    if len(specs) > MOST_ASKED:
        raise CondaError(f"it has more than {MOST_ASKED} dependencies")
    return CondaSpecs(
        tuple(channel for channel in channels if channel != "nodefaults"), tuple(dict.fromkeys(specs)), cuda
    )


def section_for(sections: Iterable[CondaSection], asked: CondaSpecs, platform: str) -> CondaSection | None:
    return next((one for one in sections if (one.platform, one.asked) == (platform, asked.lines)), None)


def with_section(sections: Iterable[CondaSection], new: CondaSection, asked: CondaSpecs) -> tuple[CondaSection, ...]:
    """The lock with the new section, and of the others those that are of the same request, for another platform."""
    return (*(one for one in sections if one.asked == asked.lines and one.platform != new.platform), new)


def make_section(platform: str, asked: CondaSpecs, packages: Iterable[CondaPackage]) -> CondaSection:
    return CondaSection(platform, asked.lines, tuple(sorted(packages, key=lambda package: (package.file, package.url))))


def render(sections: Iterable[CondaSection]) -> str:
    blocks = [
        f"\n# environment: {one.platform}\n# asked for: {', '.join(one.asked)}\n# digest: {one.digest}\n"
        + "".join(f"{package}\n" for package in one.packages)
        for one in sorted(sections, key=lambda one: one.platform)
    ]
    return HEAD + "".join(blocks) if blocks else ""


def parse(text: str) -> tuple[CondaSection, ...]:
    """The sections of a lock. Raises LockError."""
    head, *blocks = re.split(r"^(?=# environment:)", text, flags=re.MULTILINE)
    for line in head.splitlines():
        if line.strip() and not line.startswith("#"):
            raise LockError(f"its line '{line[:200]}' belongs to no environment")
    if text.strip() and not blocks:
        raise LockError("it is not a lock of conda packages")
    return tuple(_section(block.splitlines()) for block in blocks)


def _section(lines: list[str]) -> CondaSection:
    lines = [line.rstrip() for line in lines if line.strip()]
    heads = [pattern.fullmatch(line) for pattern, line in zip((_TITLE, _ASKED, _DIGEST), lines, strict=False)]
    if len(heads) < 3 or None in heads or len(lines) > MOST_PACKAGES:
        raise LockError(f"what follows '{lines[0][:200]}' is not an environment of conda packages")
    title, asked, digest = (head[1] for head in heads if head)
    packages = []
    for line in lines[3:]:
        found = _PACKAGE.fullmatch(line)
        if found is None:
            raise LockError(f"its line '{line[:200]}' is not a package with its hash")
        packages.append(CondaPackage(found[1], found[2]))
        _ = packages[-1].parts
    section = CondaSection(title, tuple(asked.split(", ")), tuple(packages))
    if section.digest != digest:
        raise LockError(f"the environment for {title} is not as it was written")
    return section


def changes(before: Iterable[CondaSection], new: CondaSection) -> list[str]:
    """What is different from the section whose place the new one takes, for people."""
    old = next((one for one in before if one.platform == new.platform), None)
    if old is None:
        return [f"{new.title}: {len(new.packages)} packages"]
    had, has = old.versions, new.versions
    moved = [f"{name} {had[name]} -> {has[name]}" for name in has if name in had and had[name] != has[name]]
    come = [f"{name} {has[name]} is new" for name in has if name not in had]
    left = [f"{name} {had[name]} is gone" for name in had if name not in has]
    return [f"{new.title}: {change}" for change in (*moved, *come, *left)] or [f"{new.title}: other files"]
