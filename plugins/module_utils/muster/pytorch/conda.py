"""Conda environments: the content of an environment.yml, and the lock with the hash of every package.

Pure functions.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from .conda_replacements import replacements
from .lock import LockError
from .request import EnvironmentRequest, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HEAD = """\
# The conda packages of this cluster's environment for each platform, with their sources.
# Written by Muster, which rejects manual changes. Commit this file with the inventory; only Muster writes it.
# If the inventory requests something else, Muster replaces it.
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
    """The file cannot be used. The message gives the reason, without the file name and the full stop."""


@dataclass(frozen=True)
class CondaSpecs:
    """channels: in search order. specs: package specifications in conda's syntax. cuda: the highest CUDA version that
    the driver supports; "" without GPUs.
    """

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
        """Return the file name without a folder. Raises LockError."""
        return self._named[0]

    @property
    def parts(self) -> tuple[str, str, str]:
        """Return name, version and build. Raises LockError."""
        found = self._named
        return found[1], found[2], found[3]

    @property
    def _named(self) -> re.Match[str]:
        found = _FILE.fullmatch(unquote(urlsplit(self.url).path.rpartition("/")[2]))
        if found is None:
            raise LockError(f"'{self.url[:200]}' is not the URL of a conda package")
        return found

    def __str__(self) -> str:
        return f"{self.url} sha256:{self.sha256}"


@dataclass(frozen=True)
class CondaRequest(EnvironmentRequest):
    """folder: folder name of the environment, derived from the lock."""

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
        """Return version and build of each package, in the format in which the inspection of an environment reports
        them.
        """
        return {name: f"{version}_{build}" for name, version, build in (package.parts for package in self.packages)}

    def as_dict(self) -> dict[str, Any]:
        packages = [{"url": one.url, "sha256": one.sha256} for one in self.packages]
        return {"platform": self.platform, "asked": list(self.asked), "packages": packages}

    def request(self) -> EnvironmentRequest:
        """Return the request that is used to plan the node. Raises LockError if the environment contains no Python."""
        found = {name: version for name, version, _ in (package.parts for package in self.packages)}
        python = found.get("python", "")
        if not re.fullmatch(r"\d+\.\d+[a-z0-9.]*", python):
            raise LockError("package python is missing, and every environment requires it")
        pins = tuple(Requirement(name, version) for name, version in sorted(self.versions.items()))
        name = f"{python}-conda-py{'.'.join(python.split('.')[:2])}-{self.digest[:8]}"
        return CondaRequest("conda", 0, ".".join(python.split(".")[:2]), pins, folder=name)


def section_of(given: Mapping[str, Any]) -> CondaSection:
    packages = tuple(CondaPackage(one["url"], one["sha256"]) for one in given["packages"])
    return CondaSection(given["platform"], tuple(given["asked"]), packages)


def asked_of(content: Any, cuda: str = "") -> CondaSpecs:
    """Return the channels and package specifications in a parsed environment.yml. Raises CondaError."""
    if not isinstance(content, dict):
        raise CondaError("not a mapping with channels and dependencies")
    channels, specs = content.get("channels"), content.get("dependencies")
    if not isinstance(channels, list) or not channels:
        raise CondaError("no channels are listed, and Muster uses no default channel")
    if not isinstance(specs, list) or not specs:
        raise CondaError("no dependencies are listed")
    if refused := [*replacements(channels, specs, content.get("variables"))]:
        raise CondaError("; ".join(refused))
    for channel in channels:
        if not isinstance(channel, str) or not _CHANNEL.fullmatch(channel) or "@" in channel:
            raise CondaError(f"channel {str(channel)[:100]!r} is neither a name nor a URL without a password")
    for spec in specs:
        if not isinstance(spec, str) or not _SPEC.fullmatch(spec) or ", " in spec:
            raise CondaError(f"dependency {str(spec)[:100]!r} is not a valid conda spec")
    if len(specs) > MOST_ASKED:
        raise CondaError(f"more than {MOST_ASKED} dependencies")
    return CondaSpecs(
        tuple(channel for channel in channels if channel != "nodefaults"), tuple(dict.fromkeys(specs)), cuda
    )


def section_for(sections: Iterable[CondaSection], asked: CondaSpecs, platform: str) -> CondaSection | None:
    return next((one for one in sections if (one.platform, one.asked) == (platform, asked.lines)), None)


def with_section(sections: Iterable[CondaSection], new: CondaSection, asked: CondaSpecs) -> tuple[CondaSection, ...]:
    """Return the lock with the new section, and with those sections for other platforms that have the same request."""
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
    """Return the sections of a lock. Raises LockError."""
    head, *blocks = re.split(r"^(?=# environment:)", text, flags=re.MULTILINE)
    for line in head.splitlines():
        if line.strip() and not line.startswith("#"):
            raise LockError(f"line '{line[:200]}' is outside of any environment")
    if text.strip() and not blocks:
        raise LockError("not a lock of conda packages")
    return tuple(_section(block.splitlines()) for block in blocks)


def _section(lines: list[str]) -> CondaSection:
    lines = [line.rstrip() for line in lines if line.strip()]
    heads = [pattern.fullmatch(line) for pattern, line in zip((_TITLE, _ASKED, _DIGEST), lines, strict=False)]
    if len(heads) < 3 or None in heads or len(lines) > MOST_PACKAGES:
        raise LockError(f"the section that starts with '{lines[0][:200]}' is not a conda environment")
    title, asked, digest = (head[1] for head in heads if head)
    packages = []
    for line in lines[3:]:
        found = _PACKAGE.fullmatch(line)
        if found is None:
            raise LockError(f"line '{line[:200]}' is not a package with a hash")
        packages.append(CondaPackage(found[1], found[2]))
        _ = packages[-1].parts
    section = CondaSection(title, tuple(asked.split(", ")), tuple(packages))
    if section.digest != digest:
        raise LockError(f"the environment for {title} was modified (its digest does not match)")
    return section


def changes(before: Iterable[CondaSection], new: CondaSection) -> list[str]:
    """Describe how the new section differs from the section that it replaces."""
    old = next((one for one in before if one.platform == new.platform), None)
    if old is None:
        return [f"{new.title}: {len(new.packages)} packages"]
    had, has = old.versions, new.versions
    moved = [f"{name} {had[name]} -> {has[name]}" for name in has if name in had and had[name] != has[name]]
    come = [f"{name} {has[name]} added" for name in has if name not in had]
    left = [f"{name} {had[name]} removed" for name in had if name not in has]
    return [f"{new.title}: {change}" for change in (*moved, *come, *left)] or [f"{new.title}: different files"]
