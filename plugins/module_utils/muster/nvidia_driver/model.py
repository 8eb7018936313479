"""What is asked of the driver on a node, what was seen of it, and the plan that follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from .family import branch_of, is_part, keeps_step, upstream, user_space

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .facts import DriverStackFacts, Gpus, PackageFacts

NOT_OURS = ("nouveau", "nova", "nova_core", "NovaCore")
BUILT_WITH = ("dkms", "linux-headers-")


@dataclass(frozen=True)
class DriverFile:
    """A file of ours. sources: where the driver comes from when it is wanted; with any other it is taken away."""

    path: str
    content: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverRequest:
    """What is asked of a node. driver, fabric, headers, pins: names of packages; without a driver it is only judged.

    exact: a version, or empty for any of the branch. reboots: whether it may be rebooted. controller: whether it is the
    machine on which Ansible runs. kept: whether the driver is kept because it works.
    """

    source: str = "nvidia"
    build: str = "dkms"
    branch: int = 0
    exact: str = ""
    pins: tuple[str, ...] = ()
    driver: tuple[str, ...] = ()
    fabric: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    files: tuple[DriverFile, ...] = ()
    removes_runfile: bool = False
    reboots: bool = True
    controller: bool = False
    kept: bool = False

    @property
    def packages(self) -> tuple[str, ...]:
        return (*self.headers, *self.driver, *self.fabric)

    def fits(self, version: str) -> bool:
        """Whether a version of the driver is what is asked for."""
        return version == self.exact if self.exact else bool(version) and branch_of(version) == self.branch


@dataclass(frozen=True)
class DriverState:
    """The facts of a node, as far as they have to do with the driver."""

    stack: DriverStackFacts
    gpus: Gpus
    secure_boot: bool | None = None

    @property
    def packages(self) -> Mapping[str, PackageFacts]:
        return self.stack["packages"]

    @property
    def loaded(self) -> str:
        return self.stack["loaded"]

    @property
    def installed(self) -> str:
        """The version that programs use: that of the packages, or of the runfile's library."""
        for name, package in self.packages.items():
            if user_space(name) and upstream(package["version"]):
                return upstream(package["version"])
        versions = (path.rpartition(".so.")[2] for path in self.stack["runfile"]["libraries"])
        return next((version for version in versions if upstream(version)), "")

    def parts(self, source: str) -> dict[str, str]:
        """Return every installed package that must have the driver's version, with the version that it has."""
        return {
            name: upstream(package["version"])
            for name, package in self.packages.items()
            if keeps_step(name, package["version"], source)
        }

    @property
    def broken(self) -> list[str]:
        """Packages of the driver, and of what its modules are built with, that dpkg has not finished."""
        unfinished = [name for name, each in self.packages.items() if each["state"] != "installed"]
        return [name for name in unfinished if is_part(name) or name.startswith(BUILT_WITH)]

    @property
    def next_kernels(self) -> list[str]:
        """The kernels that this system runs and will start: those on which the driver has to work."""
        bootable, running = self.stack["bootable"], self.stack["running"]
        if not bootable:
            return [running] if running else []
        return list(dict.fromkeys([bootable[-1], *([running] if running in bootable else [])]))

    @property
    def works(self) -> bool:
        """Whether the driver that is installed is the one that runs. Whether GPUs answer is another question."""
        foreign = any(device["driver"] in NOT_OURS for device in self.gpus["devices"])
        return bool(self.installed) and self.loaded == self.installed and not foreign and not self.broken

    @property
    def gpu_slots(self) -> list[str]:
        """The GPUs that the driver is to have: not those that were given to virtual machines."""
        return [device["slot"] for device in self.gpus["devices"] if device["driver"] != "vfio-pci"]


@dataclass(frozen=True)
class DriverDifference:
    """kind: disk (installing fixes it), boot (a reboot does), run (units do), broken (nothing that we do)."""

    kind: str
    sentence: str
    what: str = ""
    before: str = ""
    after: str = ""


class DriverUnitStep(TypedDict):
    """What becomes of a unit, beside being enabled: started anew, started where it does not run, or neither."""

    name: str
    restart: bool
    start: bool


@dataclass
class DriverPlan:
    """What to do. refusals: why nothing of it may be done; remarks: what is only said.

    request: names for apt; keep: the version that they should have, if it is still to be had. build: kernels for which
    dkms shall build. reboot: the reasons for one. due: reasons that can wait.
    """

    differences: list[DriverDifference] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    uninstall: str = ""
    configure: bool = False
    unhold: list[str] = field(default_factory=list)
    files: list[DriverFile] = field(default_factory=list)
    unwanted: list[str] = field(default_factory=list)
    apt: bool = False
    optional: list[str] = field(default_factory=list)
    keep: str = ""
    build: list[str] = field(default_factory=list)
    initramfs: list[str] = field(default_factory=list)
    units: list[DriverUnitStep] = field(default_factory=list)
    reboot: list[str] = field(default_factory=list)
    due: list[str] = field(default_factory=list)

    def differs(self, kind: str, sentence: str, what: str = "", before: str = "", after: str = "") -> None:
        self.differences.append(DriverDifference(kind, sentence, what, before, after))

    def of_kind(self, *kinds: str) -> list[DriverDifference]:
        return [each for each in self.differences if each.kind in kinds]
