"""Types of the driver's request, state and plan for a node."""

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
    """A file of Muster. sources: driver sources that require the file; with other sources it is removed."""

    path: str
    content: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverRequest:
    """The request for a node. driver, fabric, headers, pins: package names; without driver, it is only checked.

    exact: a version, or empty for any version of the branch. reboots: whether the node may be rebooted. controller:
    whether Ansible runs on the node. kept: whether the driver is kept because it works.
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
        """Return whether a driver version meets the request."""
        return version == self.exact if self.exact else bool(version) and branch_of(version) == self.branch


@dataclass(frozen=True)
class DriverState:
    """The facts of a node about the driver."""

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
        """The version that programs use: from the packages or from the runfile's library."""
        for name, package in self.packages.items():
            if user_space(name) and upstream(package["version"]):
                return upstream(package["version"])
        versions = (path.rpartition(".so.")[2] for path in self.stack["runfile"]["libraries"])
        return next((version for version in versions if upstream(version)), "")

    def parts(self, source: str) -> dict[str, str]:
        """Return the versions of all installed packages that must have the driver's version."""
        return {
            name: upstream(package["version"])
            for name, package in self.packages.items()
            if keeps_step(name, package["version"], source)
        }

    @property
    def broken(self) -> list[str]:
        """Packages of the driver and of its build tools that dpkg has not configured."""
        unfinished = [name for name, each in self.packages.items() if each["state"] != "installed"]
        return [name for name in unfinished if is_part(name) or name.startswith(BUILT_WITH)]

    @property
    def next_kernels(self) -> list[str]:
        """The kernels on which the driver must work: the next one to boot and the running one."""
        bootable, running = self.stack["bootable"], self.stack["running"]
        if not bootable:
            return [running] if running else []
        return list(dict.fromkeys([bootable[-1], *([running] if running in bootable else [])]))

    @property
    def works(self) -> bool:
        """Whether the installed driver is loaded. Does not include whether GPUs respond."""
        foreign = any(device["driver"] in NOT_OURS for device in self.gpus["devices"])
        return bool(self.installed) and self.loaded == self.installed and not foreign and not self.broken

    @property
    def gpu_slots(self) -> list[str]:
        """The GPUs for the driver, without those that are passed through to virtual machines."""
        return [device["slot"] for device in self.gpus["devices"] if device["driver"] != "vfio-pci"]


@dataclass(frozen=True)
class DriverDifference:
    """kind: fixed by an installation (disk), a reboot (boot), units (run), or not by Muster (broken)."""

    kind: str
    sentence: str
    what: str = ""
    before: str = ""
    after: str = ""


class DriverUnitStep(TypedDict):
    """An enabled unit. restart: restart it. start: start it if it is not running."""

    name: str
    restart: bool
    start: bool


@dataclass
class DriverPlan:
    """The plan. refusals: reasons not to execute it. remarks: only reported.

    apt: whether to run apt. keep: the version for all parts, if it is still available. build: kernels for which dkms
    builds modules. reboot: reasons for a reboot. due: reasons that can wait.
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
