"""Types for the driver request, the state and the plan of a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from .family import branch_of, is_part, keeps_step, library_version, upstream
from .next_boot import NextBoot, next_boot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .facts import DriverStackFacts, Gpus, PackageFacts

NOT_OURS = ("nouveau", "nova", "nova_core", "NovaCore")
BUILT_WITH = ("dkms", "linux-headers-")


@dataclass(frozen=True)
class DriverFile:
    """A file that Muster manages. sources: driver sources that need the file; with any other source it is removed."""

    path: str
    content: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverRequest:
    """The request for a node. driver, fabric, headers, pins: package names. If `driver` is empty, the driver is only
    checked.

    exact: a version, or "" for any version of the branch. reboots: whether the node may be rebooted. controller:
    whether Ansible runs on this node. kept: whether the driver is kept because it works.
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
    """The facts of a node about its driver."""

    stack: DriverStackFacts
    gpus: Gpus
    secure_boot: bool | None = None
    key_enrolled: bool | None = None

    @property
    def packages(self) -> Mapping[str, PackageFacts]:
        return self.stack["packages"]

    @property
    def loaded(self) -> str:
        return self.stack["loaded"]

    @property
    def installed(self) -> str:
        """The driver version that programs use, from the packages or from the library that a runfile installed."""
        packaged = library_version({name: package["version"] for name, package in self.packages.items()})
        versions = (path.rpartition(".so.")[2] for path in self.stack["runfile"]["libraries"])
        return packaged or next((version for version in versions if upstream(version)), "")

    def parts(self, source: str) -> dict[str, str]:
        """Return the versions of all installed packages that must have the same version as the driver."""
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
        """The kernels on which the driver must work: the running kernel and the kernel of the next boot."""
        bootable, running = self.stack["bootable"], self.stack["running"]
        if not bootable:
            return [running] if running else []
        booted = self.stack["boots"] if self.stack["boots"] in bootable else bootable[-1]
        return list(dict.fromkeys([booted, *([running] if running in bootable else [])]))

    @property
    def next_boot(self) -> NextBoot:
        return next_boot(self.stack, self.installed, self.secure_boot, self.key_enrolled)

    @property
    def works(self) -> bool:
        """Whether the installed driver is loaded. This does not show whether the GPUs respond."""
        foreign = any(device["driver"] in NOT_OURS for device in self.gpus["devices"])
        return bool(self.installed) and self.loaded == self.installed and not foreign and not self.broken

    @property
    def gpu_slots(self) -> list[str]:
        """The GPUs that the driver manages. GPUs that are passed through to virtual machines are not included."""
        return [device["slot"] for device in self.gpus["devices"] if device["driver"] != "vfio-pci"]


@dataclass(frozen=True)
class DriverDifference:
    """kind: what fixes the difference: an installation (disk), a reboot (boot), a restart of units (run), or nothing
    that Muster does (broken).
    """

    kind: str
    sentence: str
    what: str = ""
    before: str = ""
    after: str = ""


class DriverUnitStep(TypedDict):
    """A unit to enable. restart: whether to restart it. start: whether to start it if it is not running."""

    name: str
    restart: bool
    start: bool


@dataclass
class DriverPlan:
    """The plan. refusals: reasons not to execute the plan. remarks: notes that are only reported.

    apt: whether to run apt. keep: the version for all parts, if it is still available. build: kernels for which dkms
    builds modules. reboot: reasons for a reboot. due: reasons for a reboot that can wait. unready: why the driver would
    not work after a reboot.
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
    unready: str = ""

    def differs(self, kind: str, sentence: str, what: str = "", before: str = "", after: str = "") -> None:
        self.differences.append(DriverDifference(kind, sentence, what, before, after))

    def of_kind(self, *kinds: str) -> list[DriverDifference]:
        return [each for each in self.differences if each.kind in kinds]
