"""The PyTorch environment that the inventory asks for: exact pins, and the name that follows from them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PIN = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[A-Za-z0-9._,\s-]*\])?\s*==\s*([A-Za-z0-9.+!_-]+)\s*(?:;\s*(.+))?"
)
# What a requirements file may say of a package: everything that pip judges by names and versions alone, and no address.
NAME, EXTRAS = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", r"\[[A-Za-z0-9._,-]{0,128}\]"
VERSIONS = r"(?:~=|==|!=|<=|>=|<|>)[A-Za-z0-9.*+!_-]{1,128}"
MARKER = r"[\w .'\"<>=!~()-]{1,200}"
_RANGE = re.compile(rf"({NAME})({EXTRAS})?({VERSIONS}(?:,{VERSIONS})*)?(?:;({MARKER}))?", re.ASCII)
_EXACT = re.compile(r"==([A-Za-z0-9.+!_-]+)")
_MARKER = re.compile(r"python_version\s*(<=|<|==|!=|>=|>)\s*['\"](\d+)\.(\d+)['\"]")
_TORCH_VERSION = re.compile(r"\d+\.\d+\.\d+[a-z0-9.]*")
_VARIANT = re.compile(r"cpu|cuda|cu\d{2,4}")
TORCH = "torch"
PLAIN = "plain"  # the variant of what has no builds for GPUs
_ENVIRONMENT = re.compile(r"[0-9][a-z0-9.]*-(?:c[a-z0-9]+|plain)-py\d+\.\d+-[0-9a-f]{8}(\.\d+)?")


class EnvironmentRequestError(ValueError):
    """The inventory asks for something that cannot be; the text says what to write instead."""


@dataclass(frozen=True)
class Requirement:
    """One package at one version. One without a local part (`+cpu`) is met by any local build, as in pip.

    more: what pip alone judges, behind the name: a range of versions, which then has no version here, and a marker.
    """

    name: str
    version: str
    extras: str = ""
    more: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.extras}{f'=={self.version}' if self.version else ''}{self.more}"

    def met_by(self, packages: Mapping[str, str]) -> bool:
        installed = packages.get(self.name)
        if installed is None:
            return ";" in self.more
        return not self.version or same_version(installed, self.version)


@dataclass(frozen=True)
class EnvironmentRequest:
    """The environment that is asked for. variant: cpu, cuda (what the index offers by default) or cuNNN; plain for one
    that is not PyTorch's.

    locked: the version of every package that the lock gives it; empty where nothing is locked yet.
    """

    variant: str
    gpus: int
    python: str
    requirements: tuple[Requirement, ...]
    locked: Mapping[str, str] = field(default_factory=dict)

    @property
    def main(self) -> Requirement:
        """What the environment is there for."""
        return self.requirements[0]

    @property
    def name(self) -> str:
        """The folder's name. It follows from the content: the same request has the same name on every node."""
        content = "\n".join([self.python, *sorted(map(str, self.requirements))])
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        return f"{public_version(self.main.version)}-{self.variant}-py{self.python}-{digest}"


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def public_version(version: str) -> str:
    return version.partition("+")[0]


def same_version(installed: str, wanted: str) -> bool:
    def release(version: str) -> str:
        return re.sub(r"(\.0+)+(?=$|\+)", "", version.lower())

    return release(installed if "+" in wanted else public_version(installed)) == release(wanted)


def is_environment(name: str) -> bool:
    """Whether a folder's name is one that a request makes; anything else under the root is not ours."""
    return _ENVIRONMENT.fullmatch(name) is not None


def make_request(
    *, torch_version: str, variant: str, gpus: int, packages: Sequence[str], python: str, ranges: bool = False
) -> EnvironmentRequest:
    """ranges: whether the packages are those of a requirements file, and not exact pins."""
    if not _TORCH_VERSION.fullmatch(torch_version):
        raise EnvironmentRequestError(
            f"cluster_torch_version: '{torch_version}' is not an exact version. Write it as 2.13.0; "
            "the build after a '+' goes into pytorch_variant"
        )
    if variant == "auto":
        variant = "cuda" if gpus else "cpu"
    if not _VARIANT.fullmatch(variant):
        raise EnvironmentRequestError(f"pytorch_variant: '{variant}' is none of auto, cpu, cuda, or cu126 and the like")
    if gpus and variant == "cpu":
        raise EnvironmentRequestError(
            f"pytorch_variant is cpu, and cluster_gpus is {gpus}: the CPU build cannot use a GPU. "
            "Set pytorch_variant to auto, or cluster_gpus to 0"
        )
    # Without its local part pip takes the default index's default build: gigabytes of CUDA on a CPU node.
    local = "" if variant == "cuda" else f"+{variant}"
    pins = [Requirement("torch", torch_version + local)]
    for text in packages:
        requirement = parse_range(text, python) if ranges else parse_requirement(text, python)
        if requirement is None:
            continue
        # Of several ranges pip takes what meets all of them.
        if not ranges and requirement.name in {pin.name for pin in pins}:
            raise EnvironmentRequestError(
                f"pytorch_packages: {requirement.name} is named twice"
                + (" (its version is cluster_torch_version)" if requirement.name == "torch" else "")
            )
        pins.append(requirement)
    return EnvironmentRequest(variant, gpus, python, tuple(pins))


def make_plain_request(package: str, *, version: str, packages: Sequence[str], python: str) -> EnvironmentRequest:
    """The request for an environment of another package, such as JupyterLab, with what belongs to it."""
    option = "workbench_packages"
    pins = [parse_requirement(text, python, option) for text in (f"{package}=={version}", *packages)]
    return EnvironmentRequest(PLAIN, 0, python, tuple(pin for pin in pins if pin))


def parse_requirement(text: str, python: str, option: str = "pytorch_packages") -> Requirement | None:
    """The exact pin in `text`, or None when its marker leaves out this Python."""
    pin = _PIN.fullmatch(text.strip())
    if pin is None:
        raise EnvironmentRequestError(f"{option}: '{text}' is not an exact pin. Write it as name==version")
    name, extras, version, marker = pin.groups()
    if marker is not None and not _holds(marker, python):
        return None
    return Requirement(canonical_name(name), version.lower(), (extras or "").replace(" ", ""))


def parse_range(text: str, python: str) -> Requirement | None:
    """What a line of a requirements file asks for, or None when its marker leaves out this Python."""
    found = _RANGE.fullmatch(_without_spaces(text))
    if found is None:
        raise EnvironmentRequestError(f"'{text[:200]}' is no name of a package, with versions and a marker or without")
    name, extras, versions, marker = found.groups(default="")
    if marker and all(_MARKER.fullmatch(part.strip()) for part in re.split(r"\s+and\s+", marker)):
        if not _holds(marker, python):
            return None
        marker = ""
    exact = _EXACT.fullmatch(versions)
    more = ("" if exact else versions) + (f"; {marker.strip()}" if marker else "")
    return Requirement(canonical_name(name), exact[1].lower() if exact else "", extras, more)


def _without_spaces(text: str) -> str:
    """The line without the spaces that mean nothing."""
    what, semicolon, marker = text.partition(";")
    return re.sub(r"\s*([~=!<>]=|[<>,\[\]])\s*", r"\1", what).strip() + semicolon + re.sub(r"\s+", " ", marker).strip()


def _holds(marker: str, python: str) -> bool:
    parts = [_MARKER.fullmatch(part.strip()) for part in re.split(r"\s+and\s+", marker.strip())]
    if None in parts:
        raise EnvironmentRequestError(
            f"pytorch_packages: the marker '{marker}' is not understood. "
            "Compare python_version with a version, and join comparisons with 'and'"
        )
    here = tuple(map(int, python.split(".")))
    answers = []
    for part in filter(None, parts):
        there = (int(part[2]), int(part[3]))
        answers.append(
            {
                "<": here < there,
                "<=": here <= there,
                "==": here == there,
                "!=": here != there,
                ">=": here >= there,
                ">": here > there,
            }[part[1]]
        )
    return all(answers)
