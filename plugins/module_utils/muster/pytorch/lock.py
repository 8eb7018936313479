"""The lock of the PyTorch environments. It lists every wheel, so that all nodes always get the same wheels.

The file has one section for each combination of Python, machine type and build. A section is a pip requirements file
with a hash for every wheel. It contains no URLs, because the same wheels may come from another node, an index, a mirror
or a folder.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .request import EXTRAS, MARKER, PLAIN, VERSIONS, EnvironmentRequest, canonical_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HEAD = """\
# The PyTorch environments of this cluster with every wheel. All nodes get exactly these, including nodes added later.
# Written by Muster, which rejects manual changes. Commit this file with the inventory; only Muster writes it.
# If the inventory requests something else, Muster replaces it.
"""
HEAD_PLAIN = HEAD.replace("PyTorch environments", "workbench environments")
MOST = 4_000_000  # characters of the file
MOST_LINES = 1000  # of one environment
MOST_ASKED = 200
_NAME, _VERSION = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,127}"
_TITLE = re.compile(r"# environment: Python (\d{1,2}\.\d{1,2}), (\w{1,32}), (cpu|cuda|cu\d{2,4}|plain)", re.ASCII)
_ASKED = re.compile(r"# asked for: (.+)")
_REQUIRED = re.compile(rf"{_NAME}({EXTRAS})?({VERSIONS}(,{VERSIONS})*)?(; {MARKER})?", re.ASCII)
_DIGEST = re.compile(r"# digest: ([0-9a-f]{16})")
_WHEEL = re.compile(
    rf"({_NAME})==({_VERSION}) --hash=sha256:([0-9a-f]{{64}})  # ([A-Za-z0-9][A-Za-z0-9._+!-]{{0,250}}\.whl)"
)


class LockError(ValueError):
    """The lock cannot be used. The message gives the reason, without the file name."""


@dataclass(frozen=True, order=True)
class Wheel:
    """A wheel. name: package name, normalized as in pip."""

    name: str
    version: str
    sha256: str
    file: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}  # {self.file}"


@dataclass(frozen=True)
class WheelSection:
    """One environment: its target, the pins from which it was resolved, and the resulting wheels."""

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
        """Hash of the whole section.

        It shows whether the section was edited, and is used as the folder name of the wheels.
        """
        content = "\n".join([self.title, *self.asked, *map(str, self.wheels)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def requirements(self) -> str:
        """Return a requirements file for `pip install --require-hashes`."""
        return "".join(f"{wheel}\n" for wheel in self.wheels)

    def is_for(self, python: str, machine: str) -> bool:
        return (self.python, self.machine) == (python, machine)

    def as_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("python", "machine", "variant")},
            "asked": list(self.asked),
            "wheels": [vars(wheel).copy() for wheel in self.wheels],
        }


def is_digest(name: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{16}", name) is not None


def section_of(given: Mapping[str, Any]) -> WheelSection:
    """Read a section that another machine sent.

    Anything that a lock file cannot contain is rejected. Raises LockError.
    """
    try:
        wheels = tuple(Wheel(**wheel) for wheel in given["wheels"])
        section = WheelSection(given["python"], given["machine"], given["variant"], tuple(given["asked"]), wheels)
        if _parse_section(_block(section).split("\n")) == section:
            return section
    except (KeyError, TypeError):
        pass
    raise LockError("the received environment is not in the format of the lock")


def make_section(request: EnvironmentRequest, machine: str, wheels: Iterable[Wheel]) -> WheelSection:
    named = (replace(wheel, name=canonical_name(wheel.name)) for wheel in wheels)
    return WheelSection(request.python, machine, request.variant, asked_by(request), tuple(sorted(named)))


def asked_by(request: EnvironmentRequest) -> tuple[str, ...]:
    torch, *others = map(str, request.requirements)
    return (torch, *sorted(others))


def parse(text: str) -> tuple[WheelSection, ...]:
    """Return the sections of the file. Raises LockError."""
    if len(text) > MOST:
        raise LockError(f"more than {MOST} characters")
    head, *blocks = re.split(r"^(?=# environment:)", text, flags=re.MULTILINE)
    for line in head.splitlines():
        if not line.startswith("#") and line.strip():
            raise LockError(f"line '{line}' is outside of any environment")
    sections: list[WheelSection] = []
    for block in blocks:
        section = _parse_section(block.splitlines())
        if any(same_place(section, other) and section.asked == other.asked for other in sections):
            raise LockError(f"duplicate environment for {section.title}")
        sections.append(section)
    if not sections and text.strip():
        raise LockError("not a lock of PyTorch environments")
    return tuple(sections)


def _parse_section(lines: list[str]) -> WheelSection:
    lines = [line.rstrip() for line in lines if line.strip()]
    heads = [pattern.fullmatch(line) for pattern, line in zip((_TITLE, _ASKED, _DIGEST), lines, strict=False)]
    if len(heads) < 3 or None in heads:
        raise LockError(f"the section that starts with '{lines[0]}' has no valid header")
    title, asked, digest = (head for head in heads if head)
    pins = tuple(asked[1].split(", "))
    if len(lines) > MOST_LINES or len(pins) > MOST_ASKED:
        raise LockError(f"the section that starts with '{lines[0]}' is too large")
    for pin in pins:
        if not _REQUIRED.fullmatch(pin):
            raise LockError(f"'{pin[:100]}' in the header is not a requirement")
    section = WheelSection(title[1], title[2], title[3], pins, tuple(map(_parse_wheel, lines[3:])))
    if section.digest != digest[1]:
        raise LockError(f"the environment for {section.title} was modified (its digest does not match)")
    return section


def _parse_wheel(line: str) -> Wheel:
    found = _WHEEL.fullmatch(line)
    if found is None:
        raise LockError(f"line '{line[:300]}' is not a wheel with a hash")
    wheel = Wheel(*found.groups())
    if canonical_name(wheel.file.partition("-")[0]) != canonical_name(wheel.name):
        raise LockError(f"{wheel.file} is not a wheel of {wheel.name}")
    return wheel


def _block(section: WheelSection) -> str:
    return (
        f"# environment: {section.title}\n# asked for: {', '.join(section.asked)}\n# digest: {section.digest}\n"
        f"{section.requirements}"
    )


def render(sections: Sequence[WheelSection]) -> str:
    """Return the text of the file, which does not depend on the order of the sections; "" if there are no sections."""

    def place(section: WheelSection) -> tuple[Any, ...]:
        return ([int(part) for part in section.python.split(".")], section.machine, section.variant, section.asked)

    blocks = [f"\n{_block(section)}" for section in sorted(sections, key=place)]
    head = HEAD_PLAIN if {section.variant for section in sections} == {PLAIN} else HEAD
    return head + "".join(blocks) if blocks else ""


def changes(before: Sequence[WheelSection], after: Sequence[WheelSection], new: WheelSection) -> list[str]:
    """Describe how the new environment differs from the environment that it replaces."""
    gone = [section for section in before if section not in after and section.is_for(new.python, new.machine)]
    gone.sort(key=lambda section: section.variant != new.variant)
    if not gone:
        return [f"{new.title}: {len(new.wheels)} wheels"]
    had = {wheel.name: wheel.version for wheel in gone[0].wheels}
    has = {wheel.name: wheel.version for wheel in new.wheels}
    moved = [f"{name} {had[name]} -> {has[name]}" for name in has if name in had and had[name] != has[name]]
    come = [f"{name} {has[name]} added" for name in has if name not in had]
    left = [f"{name} {had[name]} removed" for name in had if name not in has]
    return [f"{new.title}: {change}" for change in (*moved, *come, *left)] or [f"{new.title}: different files"]


def same_place(one: WheelSection, other: WheelSection) -> bool:
    return (one.python, one.machine, one.variant) == (other.python, other.machine, other.variant)
