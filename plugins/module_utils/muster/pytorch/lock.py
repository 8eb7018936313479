"""The lock of the PyTorch environments: every wheel of each, so that all nodes have the same, whenever they join.

The file is a list of sections, one for each Python, machine and build. A section is a pip requirements file with a
hash for every wheel. It names no address: the same wheels may come from a peer, an index, a mirror or a folder.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .env import Request, RequestError, canonical_name, make_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HEAD = """\
# The PyTorch environments of this cluster, to the last wheel. Every node gets exactly these, also one that joins later.
# Written by Muster, which refuses changes by hand. Commit this file with the inventory: Muster writes it, and no more.
# Where cluster_torch_version, pytorch_variant or pytorch_packages ask for something else, it is written anew.
"""
UNASKED = "auto"
_TITLE = re.compile(r"# environment: Python (\d+\.\d+), (\w+), (\w+)")
_ASKED = re.compile(r"# asked for: (.+)")
_DIGEST = re.compile(r"# digest: ([0-9a-f]{16})")
_WHEEL = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!_-]+) --hash=sha256:([0-9a-f]{64})  # ([A-Za-z0-9._+!-]+\.whl)")


class LockError(ValueError):
    """The lock cannot be used; the text says why, without the file's name."""


@dataclass(frozen=True, order=True)
class Wheel:
    """One wheel. name: as pip compares names."""

    name: str
    version: str
    sha256: str
    file: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}  # {self.file}"


@dataclass(frozen=True)
class Section:
    """One environment: for whom it is, the pins that it was resolved from, and what came of them."""

    python: str
    machine: str
    variant: str
    asked: tuple[str, ...]
    wheels: tuple[Wheel, ...]

    @property
    def title(self) -> str:
        return f"Python {self.python}, {self.machine}, {self.variant}"

    @property
    def digest(self) -> str:
        """Of everything in the section: it shows an edit, and names the folder with the wheels."""
        content = "\n".join([self.title, *self.asked, *map(str, self.wheels)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def requirements(self) -> str:
        """A file for pip install --require-hashes."""
        return "".join(f"{wheel}\n" for wheel in self.wheels)

    def is_for(self, python: str, machine: str) -> bool:
        return (self.python, self.machine) == (python, machine)

    def as_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("python", "machine", "variant")},
            "asked": list(self.asked),
            "wheels": [vars(wheel).copy() for wheel in self.wheels],
        }


@dataclass(frozen=True)
class Ask:
    """What the inventory asks of a node. auto: the build that V(auto) is on nodes with GPUs, empty for the index's."""

    torch_version: str
    variant: str
    gpus: int
    packages: tuple[str, ...]
    auto: str = ""

    def request(self, python: str, variant: str = "") -> Request:
        variant = variant or self.variant
        if variant == UNASKED and self.gpus:
            variant = self.auto if self.auto not in ("", "cpu") else "cuda"
        packages = self.packages
        return make_request(
            torch_version=self.torch_version, variant=variant, gpus=self.gpus, packages=packages, python=python
        )


@dataclass(frozen=True)
class Choice:
    """The request that holds, its section of the lock where there is one, and what the user should know."""

    request: Request
    section: Section | None = None
    note: str = ""


def is_digest(name: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{16}", name) is not None


def section_of(given: Mapping[str, Any]) -> Section:
    wheels = tuple(Wheel(**wheel) for wheel in given["wheels"])
    return Section(given["python"], given["machine"], given["variant"], tuple(given["asked"]), wheels)


def make_section(request: Request, machine: str, wheels: Iterable[Wheel]) -> Section:
    named = (replace(wheel, name=canonical_name(wheel.name)) for wheel in wheels)
    return Section(request.python, machine, request.variant, asked_by(request), tuple(sorted(named)))


def asked_by(request: Request) -> tuple[str, ...]:
    torch, *others = map(str, request.requirements)
    return (torch, *sorted(others))


def choose(sections: Iterable[Section], ask: Ask, python: str, machine: str) -> Choice:
    """What a node of this Python and machine shall have."""
    here = [section for section in sections if section.is_for(python, machine)]
    request = ask.request(python)
    found = _section_for(here, request)
    if found is None and ask.variant == UNASKED and ask.gpus:
        # Another build than auto would take now, which all nodes before this one have got.
        for section in sorted(here, key=_newest_build):
            if section.variant != "cpu" and _section_for([section], ask.request(python, section.variant)):
                request, found = ask.request(python, section.variant), section
                break
    if found is None:
        return Choice(request)
    note = ""
    if ask.auto and found.variant != ask.request(python).variant:
        note = (
            f"the lock has PyTorch's build {found.variant}, which the other nodes have, and auto would now take"
            f" {ask.auto}. To change all nodes, set pytorch_variant to {ask.auto}"
        )
    return Choice(with_lock(request, found), found, note)


def with_lock(request: Request, section: Section) -> Request:
    return replace(request, locked={wheel.name: wheel.version for wheel in section.wheels})


def _section_for(sections: Iterable[Section], request: Request) -> Section | None:
    asked = asked_by(request)
    return next((s for s in sections if s.variant == request.variant and s.asked == asked), None)


def _newest_build(section: Section) -> tuple[int, str]:
    return (-int(section.variant[2:]) if section.variant[2:].isdigit() else 0, section.variant)


def parse(text: str) -> tuple[Section, ...]:
    """The sections of the file's text. Raises LockError."""
    head, *blocks = re.split(r"^(?=# environment:)", text, flags=re.MULTILINE)
    for line in head.splitlines():
        if not line.startswith("#") and line.strip():
            raise LockError(f"its line '{line}' belongs to no environment")
    sections: list[Section] = []
    for block in blocks:
        section = _parse_section(block.splitlines())
        if any(_same_place(section, other) and section.asked == other.asked for other in sections):
            raise LockError(f"it has the environment for {section.title} twice")
        sections.append(section)
    if not sections and text.strip():
        raise LockError("it is not a lock of PyTorch environments")
    return tuple(sections)


def _parse_section(lines: list[str]) -> Section:
    lines = [line.rstrip() for line in lines if line.strip()]
    heads = [pattern.fullmatch(line) for pattern, line in zip((_TITLE, _ASKED, _DIGEST), lines, strict=False)]
    if len(heads) < 3 or None in heads:
        raise LockError(f"what follows '{lines[0]}' is not how such an environment begins")
    title, asked, digest = (head for head in heads if head)
    wheels = []
    for line in lines[3:]:
        found = _WHEEL.fullmatch(line)
        if found is None:
            raise LockError(f"its line '{line}' is not a wheel with its hash")
        wheels.append(Wheel(*found.groups()))
    section = Section(title[1], title[2], title[3], tuple(asked[1].split(", ")), tuple(wheels))
    if section.digest != digest[1]:
        raise LockError(f"the environment for {section.title} is not as it was written")
    return section


def render(sections: Iterable[Section]) -> str:
    """The file's text, the same for the same sections in whatever order; empty for none."""

    def place(section: Section) -> tuple[Any, ...]:
        return ([int(part) for part in section.python.split(".")], section.machine, section.variant, section.asked)

    blocks = [
        f"\n# environment: {section.title}\n# asked for: {', '.join(section.asked)}\n# digest: {section.digest}\n"
        f"{section.requirements}"
        for section in sorted(sections, key=place)
    ]
    return HEAD + "".join(blocks) if blocks else ""


def updated(sections: Sequence[Section], new: Section, asks: Iterable[Ask]) -> tuple[Section, ...]:
    """The lock with the new section, and without those that no node of the inventory asks for any longer."""
    asks = tuple(asks)
    kept = [
        section
        for section in sections
        if not (_same_place(section, new) and section.asked == new.asked) and still_asked(section, asks)
    ]
    return (*kept, new)


def still_asked(section: Section, asks: Iterable[Ask]) -> bool:
    for ask in asks:
        if ask.variant == UNASKED:
            if (section.variant == "cpu") == bool(ask.gpus):
                continue
        elif ask.variant != section.variant:
            continue
        try:
            request = ask.request(section.python, section.variant)
        except RequestError:
            continue  # a node that cannot have what it asks for is told so when its turn comes
        if asked_by(request) == section.asked:
            return True
    return False


def changes(before: Sequence[Section], after: Sequence[Section], new: Section) -> list[str]:
    """What is different from the environment whose place the new one takes, for people."""
    gone = [section for section in before if section not in after and section.is_for(new.python, new.machine)]
    gone.sort(key=lambda section: section.variant != new.variant)
    if not gone:
        return [f"{new.title}: {len(new.wheels)} wheels"]
    had = {wheel.name: wheel.version for wheel in gone[0].wheels}
    has = {wheel.name: wheel.version for wheel in new.wheels}
    moved = [f"{name} {had[name]} -> {has[name]}" for name in has if name in had and had[name] != has[name]]
    come = [f"{name} {has[name]} is new" for name in has if name not in had]
    left = [f"{name} {had[name]} is gone" for name in had if name not in has]
    return [f"{new.title}: {change}" for change in (*moved, *come, *left)] or [f"{new.title}: other files"]


def _same_place(one: Section, other: Section) -> bool:
    return (one.python, one.machine, one.variant) == (other.python, other.machine, other.variant)


def ahead_of(own: str, looks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The nodes that download for this one if they can, in the order in which they try.

    looks: by node, in the order of the play, what each needs: build, key (nodes with the same one need the same
    wheels) and here (whether it has them already).
    """
    mine = looks[own]
    same = [name for name, look in looks.items() if look["build"] and look["key"] == mine["key"]]
    same.sort(key=lambda name: not looks[name]["here"])
    return same[: same.index(own)] if own in same else []
