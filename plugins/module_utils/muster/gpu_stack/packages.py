"""What the packages are called, by source. The names have a cliff: after 580 NVIDIA's carry no branch any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import StackPackage
from .table import numbers

if TYPE_CHECKING:
    from .nodes import GpuNode
    from .table import Branch, VersionsTable

CONTAINERS = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)


def pins(source: str, branch: Branch, exact: str) -> tuple[StackPackage, ...]:
    """Return what NVIDIA's repository needs beside a driver: without it, parts of one branch come from the newest."""
    return (StackPackage(f"nvidia-driver-pinning-{exact or branch.number}"),) if source == "nvidia" else ()


def driver(node: GpuNode, source: str, branch: Branch, modules: str, build: str) -> tuple[StackPackage, ...]:
    """Return the packages of the driver itself; nvidia-smi is among what they bring."""
    if source == "nvidia":
        name = "nvidia-open" if modules == "open" else "cuda-drivers"
        # Debian's side of NVIDIA's repository never had the branch in these names.
        suffix = f"-{branch.number}" if branch.suffixed and node.distribution == "ubuntu" else ""
        # From 590 on it is only recommended, and a server may be set up to install no such packages.
        return (StackPackage(name + suffix), StackPackage("nvidia-persistenced"))
    if source == "debian":
        kernel = "nvidia-open-kernel-dkms" if modules == "open" else "nvidia-kernel-dkms"
        return tuple(map(StackPackage, (kernel, "libcuda1", "nvidia-smi", "nvidia-persistenced")))
    flavour = f"{branch.number}-server" + ("-open" if modules == "open" else "")
    utils = StackPackage(f"nvidia-utils-{branch.number}-server")
    if build == "dkms":
        # By name: the modules of every kernel flavour provide it as well, and where dkms cannot be had apt takes one of
        # those with its kernel, that of another cloud for one (seen with apt 2.7 on Ubuntu 24.04).
        return (StackPackage(f"nvidia-headless-{flavour}"), StackPackage(f"nvidia-dkms-{flavour}"), utils)
    kernels = [StackPackage(f"linux-modules-nvidia-{flavour}-{kernel}") for kernel in kernel_flavours(node)]
    return (*kernels, StackPackage(f"nvidia-headless-no-dkms-{flavour}"), utils)


def fabric(node: GpuNode, source: str, branch: Branch) -> tuple[StackPackage, ...]:
    """Return what runs NVSwitches, on a node that has them; it has to be exactly of the driver's version."""
    if not node.has_fabric:
        return ()
    suffix = f"-{branch.number}" if source == "ubuntu" or branch.fabric_suffixed else ""
    names = [f"nvidia-fabricmanager{suffix}", f"libnvidia-nscq{suffix}"]
    if any(chip.nvlink5 for chip in node.chips):
        names += [f"libnvsdm{suffix}", "nvlsm", "infiniband-diags"]
    return tuple(map(StackPackage, names))


def kernel_flavours(node: GpuNode) -> tuple[str, ...]:
    plain = "generic" if node.distribution == "ubuntu" else ("arm64" if node.seen.machine == "aarch64" else "amd64")
    return node.seen.kernels or (plain,)


def headers(node: GpuNode, build: str) -> tuple[StackPackage, ...]:
    """Return the packages that bring headers for every kernel that is installed, and for those that will be."""
    return tuple(StackPackage(f"linux-headers-{kernel}") for kernel in kernel_flavours(node)) if build == "dkms" else ()


def cuda_toolkits(versions: tuple[str, ...]) -> tuple[StackPackage, ...]:
    """Return the toolkits alone: cuda and cuda-13-0 would bring a driver of their own choosing."""
    return tuple(StackPackage(f"cuda-toolkit-{version.replace('.', '-')}") for version in versions)


def nccl(table: VersionsTable, wanted: str, cuda: str) -> tuple[StackPackage, ...]:
    """Return the system's NCCL for nccl-tests: of the same CUDA major version, and as near to PyTorch's as there is."""
    major = cuda.partition(".")[0]
    there = [
        (version, max((build for build in builds if build.startswith(f"{major}.")), key=numbers, default=""))
        for version, builds in table.nccl.items()
    ]
    fitting = [(version, build) for version, build in there if build]
    if not fitting:
        return ()
    target = numbers(wanted or "0")

    def distance(entry: tuple[str, str]) -> tuple[int, ...]:
        return tuple(abs(a - b) for a, b in zip(numbers(entry[0].partition("-")[0]), (*target, 0, 0, 0), strict=False))

    version, build = min(fitting, key=distance)
    return tuple(StackPackage(name, f"{version}+cuda{build}") for name in ("libnccl2", "libnccl-dev"))


def containers(table: VersionsTable) -> tuple[StackPackage, ...]:
    return tuple(StackPackage(name, table.container_toolkit) for name in CONTAINERS)


def dcgm(table: VersionsTable, node: GpuNode, branch: int) -> tuple[StackPackage, ...]:
    """Return DCGM for the newest CUDA that the driver runs; Volta and older need the one for CUDA 12 as well."""
    majors = [13] if branch >= numbers(table.floors["13"])[0] else [12]
    if node.only_proprietary and 12 not in majors:
        majors.append(12)
    parts = [f"datacenter-gpu-manager-4-cuda{major}" for major in majors]
    return tuple(StackPackage(name, table.dcgm) for name in ("datacenter-gpu-manager-4-core", *parts))
