"""What of the facts of a node has to do with the driver: the shapes of `stack` and `gpus` (inspect/facts.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PackageFacts(TypedDict):
    """state: installed, or dpkg's word for what it has not finished."""

    version: str
    held: bool
    state: str


class KernelFacts(TypedDict):
    """module: version of the driver's module that modprobe takes; empty for none. since_boot: installed since then."""

    module: str
    module_path: str
    signer: str
    license: str
    headers: bool
    has_initramfs: bool
    initramfs_old: bool
    since_boot: bool


class UnitFacts(TypedDict):
    """load, active, enabled: as systemd says. reload: whether it has to read the unit again. started: wall clock, s."""

    load: str
    active: str
    enabled: str
    reload: bool
    argv: str
    fragment: str
    started: float | None


class DriverFileFacts(TypedDict, total=False):
    """mode: as 0644. changed: in seconds of the wall clock. One that cannot be read has nothing of all this."""

    text: str
    mode: str
    owner: str
    changed: float


class DriverHolder(TypedDict):
    """A process that has a file of the driver open. age: in seconds."""

    name: str
    pid: int
    owner: str
    age: int | None


class Runfile(TypedDict):
    """Paths of NVIDIA's programs and libraries that no package brought; log: whether the installer left one."""

    programs: Sequence[str]
    libraries: Sequence[str]
    log: bool


class SmiGpu(TypedDict):
    index: int
    name: str
    driver: str
    persistence: bool


class NvidiaSmi(TypedDict):
    """asked: whether it was, which it is while the module is loaded. said: what it said beside an answer."""

    asked: bool
    why: str
    gpus: Sequence[SmiGpu]
    said: str


class DriverLogs(TypedDict):
    kernel_log: str
    dkms: str


class DriverStackFacts(TypedDict):
    """Every kernel, unit, file and package by its name; bootable: kernels, the newest last."""

    packages: Mapping[str, PackageFacts]
    dpkg_interrupted: bool
    loaded: str
    running: str
    bootable: Sequence[str]
    kernels: Mapping[str, KernelFacts]
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
    """driver: the kernel's, such as nvidia or vfio-pci."""

    slot: str
    id: str
    name: str
    driver: str


class Gpus(TypedDict):
    """nvswitches: how many are on the bus."""

    devices: Sequence[Device]
    nvswitches: int
    driver_version: str
