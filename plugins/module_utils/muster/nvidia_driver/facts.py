"""Types for the driver facts of a node: `stack` and `gpus` (inspect/facts.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PackageFacts(TypedDict):
    """state: "installed", or the state in which dpkg left the package."""

    version: str
    held: bool
    state: str


class KernelFacts(TypedDict):
    """module: version of the module that modprobe would load; "" if there is none. module_why: why this is unknown.

    built_for: the kernel for which the module was built; "" if unknown. since_boot: whether the kernel was installed
    after the last boot.
    """

    module: str
    module_why: str
    built_for: str
    module_path: str
    signer: str
    license: str
    headers: bool
    has_initramfs: bool
    initramfs_old: bool
    since_boot: bool


class UnitFacts(TypedDict):
    """load, active, enabled: states from systemd. reload: whether systemd must reload the unit. started: when it was
    started, in seconds since the epoch.
    """

    load: str
    active: str
    enabled: str
    reload: bool
    argv: str
    fragment: str
    started: float | None


class DriverFileFacts(TypedDict, total=False):
    """mode: such as 0644. changed: modification time in seconds since the epoch. The text is "" if the file cannot be
    read.
    """

    text: str
    mode: str
    owner: str
    changed: float


class DriverHolder(TypedDict):
    """A process that has opened a device file of the driver. age: seconds since the process was started."""

    name: str
    pid: int
    owner: str
    age: int | None


class Runfile(TypedDict):
    """Paths of NVIDIA programs and libraries that do not belong to any package.

    log: whether the installer left a log.
    """

    programs: Sequence[str]
    libraries: Sequence[str]
    log: bool


class SmiGpu(TypedDict):
    index: int
    name: str
    driver: str
    persistence: bool


class NvidiaSmi(TypedDict):
    """asked: whether nvidia-smi was run, which requires a loaded module. said: its output other than the result."""

    asked: bool
    why: str
    gpus: Sequence[SmiGpu]
    said: str


class DriverLogs(TypedDict):
    kernel_log: str
    dkms: str


class BootFacts(TypedDict):
    """The kernels by name. loaded: version of the loaded driver. bootable: bootable kernels, the newest last.

    boots: the kernel of the next boot. boots_why: why it is unknown.
    """

    loaded: str
    running: str
    bootable: Sequence[str]
    kernels: Mapping[str, KernelFacts]
    boots: str
    boots_why: str


class NextBootFacts(BootFacts):
    """secure_boot: None if unknown. key_enrolled: whether the firmware trusts the signing key of dkms."""

    secure_boot: bool | None
    key_enrolled: bool | None


class DriverStackFacts(BootFacts):
    """Units, files and packages by name."""

    packages: Mapping[str, PackageFacts]
    dpkg_interrupted: bool
    files: Mapping[str, DriverFileFacts]
    reboot_required: bool
    reboot_required_by: Sequence[str]
    runfile: Runfile
    units: Mapping[str, UnitFacts]
    holders: Sequence[DriverHolder]
    launches: Sequence[str]
    nvidia_smi: NvidiaSmi
    evidence: DriverLogs


class Device(TypedDict):
    """A PCI device. driver: its kernel driver, such as nvidia or vfio-pci."""

    slot: str
    id: str
    name: str
    driver: str


class Gpus(TypedDict):
    """nvswitches: number of NVSwitches on the PCI bus."""

    devices: Sequence[Device]
    nvswitches: int
    driver_version: str
