"""The PyTorch environment that the inventory requests: exact pins, and a name derived from these pins."""

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
# Supported requirements: those that pip evaluates by names and versions only, without URLs.
NAME, EXTRAS = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", r"\[[A-Za-z0-9._,-]{0,128}\]"
VERSIONS = r"(?:~=|==|!=|<=|>=|<|>)[A-Za-z0-9.*+!_-]{1,128}"
MARKER = r"[\w .'\"<>=!~()-]{1,200}"
_RANGE = re.compile(rf"({NAME})({EXTRAS})?({VERSIONS}(?:,{VERSIONS})*)?(?:;({MARKER}))?", re.ASCII)
_EXACT = re.compile(r"==([A-Za-z0-9.+!_-]+)")
_MARKER = re.compile(r"python_version\s*(<=|<|==|!=|>=|>)\s*['\"](\d+)\.(\d+)['\"]")
_TORCH_VERSION = re.compile(r"\d+\.\d+\.\d+[a-z0-9.]*")
_VARIANT = re.compile(r"cpu|cuda|cu\d{2,4}")
TORCH = "torch"
PLAIN = "plain"  # the variant of packages without GPU builds
_ENVIRONMENT = re.compile(r"[0-9][a-z0-9.]*-(?:c[a-z0-9]+|plain)-py\d+\.\d+-[0-9a-f]{8}(\.\d+)?")


class EnvironmentRequestError(ValueError):
    """The request in the inventory is impossible. The message names the option to change."""


@dataclass(frozen=True)
class Requirement:
    """One package in one version. As in pip, a version without a local part (`+cpu`) matches any local build.

    more: what only pip evaluates: a version range (`version` is then "") and a marker.
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
    """The requested environment. variant: cpu, cuda (the index's default build) or cuNNN; plain for an environment
    without PyTorch.

    locked: the version of every package in the lock; empty if nothing is locked yet.
    """

    variant: str
    gpus: int
    python: str
    requirements: tuple[Requirement, ...]
    locked: Mapping[str, str] = field(default_factory=dict)

    @property
    def main(self) -> Requirement:
        """Return the requirement for the main package of the environment."""
        return self.requirements[0]

    @property
    def name(self) -> str:
        """Return the folder name. It is derived from the request, so it is the same on every node."""
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
    """Return whether a folder name is that of an environment. Other folders in the root do not belong to Muster."""
    return _ENVIRONMENT.fullmatch(name) is not None


def make_request(
    *, torch_version: str, variant: str, gpus: int, packages: Sequence[str], python: str, ranges: bool = False
) -> EnvironmentRequest:
    """Return the request. ranges: whether the packages come from a requirements file instead of exact pins."""
    if not _TORCH_VERSION.fullmatch(torch_version):
        raise EnvironmentRequestError(
            f"cluster_torch_version: '{torch_version}' is not an exact version. Use a version such as 2.13.0; "
            "set the build (after a '+') with pytorch_variant"
        )
    if variant == "auto":
        variant = "cuda" if gpus else "cpu"
    if not _VARIANT.fullmatch(variant):
        raise EnvironmentRequestError(
            f"pytorch_variant: '{variant}' is invalid. Use auto, cpu, cuda, or a build such as cu126"
        )
    if gpus and variant == "cpu":
        raise EnvironmentRequestError(
            f"pytorch_variant is cpu, but cluster_gpus is {gpus}, and the CPU build cannot use GPUs. "
            "Set pytorch_variant to auto, or cluster_gpus to 0"
        )
    # Without its local part, pip selects the index's default build: gigabytes of CUDA on a CPU node.
    local = "" if variant == "cuda" else f"+{variant}"
    pins = [Requirement("torch", torch_version + local)]
    for text in packages:
        requirement = parse_range(text, python) if ranges else parse_requirement(text, python)
        if requirement is None:
            continue
        # If a package has several ranges, pip selects a version that meets all of them.
        if not ranges and requirement.name in {pin.name for pin in pins}:
            raise EnvironmentRequestError(
                f"pytorch_packages: {requirement.name} is listed twice"
                + (" (cluster_torch_version sets its version)" if requirement.name == "torch" else "")
                + ". Remove one entry"
            )
        pins.append(requirement)
    return EnvironmentRequest(variant, gpus, python, tuple(pins))


def make_plain_request(package: str, *, version: str, packages: Sequence[str], python: str) -> EnvironmentRequest:
    """Return the request for an environment without PyTorch, such as the environment of JupyterLab."""
    option = "workbench_packages"
    pins = [parse_requirement(text, python, option) for text in (f"{package}=={version}", *packages)]
    return EnvironmentRequest(PLAIN, 0, python, tuple(pin for pin in pins if pin))


def parse_requirement(text: str, python: str, option: str = "pytorch_packages") -> Requirement | None:
    """Return the exact pin in `text`; None if its marker excludes this Python version."""
    pin = _PIN.fullmatch(text.strip())
    if pin is None:
        raise EnvironmentRequestError(f"{option}: '{text}' is not an exact pin. Use the form name==version")
    name, extras, version, marker = pin.groups()
    if marker is not None and not _holds(marker, python):
        return None
    return Requirement(canonical_name(name), version.lower(), (extras or "").replace(" ", ""))


def parse_range(text: str, python: str) -> Requirement | None:
    """Return the requirement in a line of a requirements file; None if its marker excludes this Python version."""
    found = _RANGE.fullmatch(_without_spaces(text))
    if found is None:
        raise EnvironmentRequestError(f"'{text[:200]}' is not a package name with optional versions and marker")
    name, extras, versions, marker = found.groups(default="")
    if marker and all(_MARKER.fullmatch(part.strip()) for part in re.split(r"\s+and\s+", marker)):
        if not _holds(marker, python):
            return None
        marker = ""
    exact = _EXACT.fullmatch(versions)
    more = ("" if exact else versions) + (f"; {marker.strip()}" if marker else "")
    return Requirement(canonical_name(name), exact[1].lower() if exact else "", extras, more)


def _without_spaces(text: str) -> str:
    """Return the line without spaces that have no meaning."""
    what, semicolon, marker = text.partition(";")
    return re.sub(r"\s*([~=!<>]=|[<>,\[\]])\s*", r"\1", what).strip() + semicolon + re.sub(r"\s+", " ", marker).strip()


def _holds(marker: str, python: str) -> bool:
    parts = [_MARKER.fullmatch(part.strip()) for part in re.split(r"\s+and\s+", marker.strip())]
    if None in parts:
        raise EnvironmentRequestError(
            f"pytorch_packages: the marker '{marker}' is not supported. "
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
