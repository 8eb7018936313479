"""Read the compatibility table as typed rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 2


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version for comparison: `580.65.06` gives (580, 65, 6).

    `2.16.0rc1` is treated as 2.16.0.
    """
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))


def _range(text: str) -> tuple[int, int]:
    first, last = text.split("-")
    return int(first, 16), int(last, 16)


def _bare(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without its source references."""
    return {name: value for name, value in row.items() if name != "source"}


@dataclass(frozen=True)
class Release:
    """A release of PyTorch. variants: NCCL and cuDNN versions of each build; empty if unknown."""

    version: str
    default: str
    python: tuple[str, str]
    variants: Mapping[str, tuple[str, str]]

    def takes(self, python: str) -> bool:
        oldest, newest = self.python
        return numbers(oldest) <= numbers(python)[:2] <= numbers(newest)


@dataclass(frozen=True)
class Branch:
    """A driver branch. until: the month in which support ends; "" if unknown."""

    number: int
    kind: str
    until: str
    suffixed: bool
    fabric_suffixed: bool
    proprietary: bool
    newest: str


@dataclass(frozen=True)
class Architecture:
    """open: whether open kernel modules support the architecture: no, may or must. oldest, newest: supported branches;
    0 means no limit.
    """

    name: str
    open: str
    oldest: int
    newest: int


@dataclass(frozen=True)
class Chip:
    """A GPU chip.

    grace: whether it is combined with a Grace CPU. nvlink5: whether it is used on boards of eight GPUs whose NVSwitches
    are not on the bus.
    """

    architecture: Architecture
    capability: str
    grace: bool = False
    nvlink5: bool = False


@dataclass(frozen=True)
class TorchBuild:
    """The compute capabilities that a build of PyTorch supports, starting with a given release.

    arm: those of the aarch64 build.
    """

    since: str
    capabilities: tuple[str, ...]
    arm: tuple[str, ...]


@dataclass(frozen=True)
class System:
    """An operating system. branches: driver branches by source, in order of preference."""

    name: str
    python: str
    branches: Mapping[str, tuple[int, ...]]


class VersionsTable:
    """The compatibility table in roles/gpu_stack/files/versions.yml."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        if data["schema"] != SCHEMA:
            message = f"the table of versions has schema {data['schema']}, but only schema {SCHEMA} is supported"
            raise ValueError(message)
        self.seen = str(data["seen"])
        self.floors = {major: str(row["driver"]) for major, row in data["cuda"]["floor"].items()}
        self.natives = {minor: str(row["driver"]) for minor, row in data["cuda"]["native"].items()}
        packages = data["packages"]
        self.nccl = {version: tuple(map(str, row["cuda"])) for version, row in packages["nccl"].items()}
        self.cuda_toolkits = tuple(map(str, packages["cuda_toolkit"]["versions"]))
        self.container_toolkit = str(packages["container_toolkit"]["version"])
        self.dcgm = str(packages["dcgm"]["version"])
        self.builds = {
            variant: [TorchBuild(row["from"], tuple(row["capabilities"]), tuple(row.get("arm", ()))) for row in rows]
            for variant, rows in data["builds"].items()
        }
        self.branches = {number: Branch(number, **_bare(row)) for number, row in data["branches"].items()}
        self._kernels = data["kernels"]
        self.releases = {
            version: Release(
                version,
                row["default"],
                (row["python"][0], row["python"][1]),
                {variant: (pair[0], pair[1]) for variant, pair in row["variants"].items()},
            )
            for version, row in data["torch"].items()
        }
        self.systems = {
            name: System(
                name,
                row["python"],
                {source: tuple(row[source]) for source in ("nvidia", "ubuntu", "debian") if source in row},
            )
            for name, row in data["systems"].items()
        }
        chips: dict[str, Chip] = {}
        self._ranges: list[tuple[int, int, Chip]] = []
        for name, row in data["architectures"].items():
            architecture = Architecture(name, row["open"], row.get("oldest", 0), row.get("newest", 0))
            for capability, ranges in row["capabilities"].items():
                chip = Chip(architecture, capability, nvlink5=capability in row.get("nvlink5", ()))
                chips[capability] = chip
                # IDs of GPUs with a Grace CPU are inside the ranges of the others, so they must be first.
                self._ranges += [(*_range(text), replace(chip, grace=True)) for text in row.get("grace", ())]
                self._ranges += [(*_range(text), chip) for text in ranges]
        self._models = {
            model.upper(): replace(chips[row["capability"]], grace=row.get("grace", False))
            for model, row in data["gpus"].items()
        }

    def release(self, version: str) -> Release | None:
        """Return the row of a release or, if there is none, of another patch release of the same minor release; None if
        unknown.
        """
        exact = self.releases.get(version)
        minor = numbers(version)[:2]
        return exact or next((row for name, row in self.releases.items() if numbers(name)[:2] == minor), None)

    def cannot_build(self, version: str, kernel: str, system: str) -> str:
        """Return the newest version of the driver's branch that fails for this kernel; "" if this one can be built."""
        release = numbers(kernel.replace("-", "."))
        affected = (
            str(row["fails"])
            for row in self._kernels
            if row["branch"] == numbers(version)[0] and row.get("system", system) == system
            if numbers(row["kernel"].replace("-", ".")) <= release and numbers(version) <= numbers(row["fails"])
        )
        return next(affected, "")

    def chip_of_id(self, pci_id: str) -> Chip | None:
        """Return the chip of a PCI device ID such as `10de:2330`; None if unknown."""
        device = int(pci_id.rpartition(":")[2], 16)
        return next((chip for first, last, chip in self._ranges if first <= device <= last), None)

    def chip_of_model(self, model: str) -> Chip | None:
        """Return the chip of a model name such as `NVIDIA H100 80GB` or `rtx-4090`; None if unknown."""
        plain = "".join(letter for letter in model.upper() if letter.isalnum())
        for brand in ("NVIDIA", "TESLA", "GEFORCE", "QUADRO", "HGX", "DGX"):
            plain = plain.removeprefix(brand)
        fitting = [name for name in self._models if plain.startswith(name)]
        return self._models[max(fitting, key=len)] if fitting else None

    def has_code_for(self, variant: str, torch: str, capability: str, machine: str) -> bool:
        """Return whether a PyTorch build has code for a GPU: code for the same major compute capability and the same or
        a lower minor one.
        """
        builds = [build for build in self.builds.get(variant, ()) if numbers(build.since) <= numbers(torch)]
        if not builds:
            return False
        major, minor = numbers(capability)
        held = builds[-1].arm if machine == "aarch64" else builds[-1].capabilities
        return any(numbers(code)[0] == major and numbers(code)[1] <= minor for code in held)
