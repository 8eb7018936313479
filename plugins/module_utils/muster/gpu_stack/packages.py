"""Return package names by source, and the repositories of the packages.

After branch 580, NVIDIA's package names no longer contain the branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import urljoin

from .model import StackPackage
from .table import numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .model import NodeStack
    from .nodes import StackNode
    from .table import Branch, VersionsTable

CONTAINERS = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
# Not part of the resolved stack, and installed before it: driver modules are built against DOCA's modules.
RDMA = "rdma"
# The parts of a stack in the order of installation, with their packages. Each part has a role of the same name.
PARTS = {
    "nvidia_driver": "driver",
    "cuda_toolkit": "cuda",
    "nccl": "nccl",
    "container_toolkit": "containers",
    "dcgm": "dcgm",
}


def pins(source: str, branch: Branch, exact: str) -> tuple[StackPackage, ...]:
    """Return the package that pins the driver version in NVIDIA's repository.

    Without it, apt installs some packages from the newest branch.
    """
    return (StackPackage(f"nvidia-driver-pinning-{exact or branch.number}"),) if source == "nvidia" else ()


def driver(node: StackNode, source: str, branch: Branch, modules: str, build: str) -> tuple[StackPackage, ...]:
    """Return the packages of the driver, including nvidia-smi."""
    if source == "nvidia":
        name = "nvidia-open" if modules == "open" else "cuda-drivers"
        # In NVIDIA's repository for Debian, these names never have the branch.
        suffix = f"-{branch.number}" if branch.suffixed and node.distribution == "ubuntu" else ""
        # From 590 on, nvidia-persistenced is only recommended, and a server may be configured without recommendations.
        return (StackPackage(name + suffix), StackPackage("nvidia-persistenced"))
    if source == "debian":
        kernel = "nvidia-open-kernel-dkms" if modules == "open" else "nvidia-kernel-dkms"
        return tuple(map(StackPackage, (kernel, "libcuda1", "nvidia-smi", "nvidia-persistenced")))
    flavour = f"{branch.number}-server" + ("-open" if modules == "open" else "")
    utils = StackPackage(f"nvidia-utils-{branch.number}-server")
    if build == "dkms":
        # By name: the modules of every kernel flavour provide it too. If dkms is not available, apt would install one
        # of those with its kernel, even that of another cloud (observed with apt 2.7 on Ubuntu 24.04).
        return (StackPackage(f"nvidia-headless-{flavour}"), StackPackage(f"nvidia-dkms-{flavour}"), utils)
    kernels = [StackPackage(f"linux-modules-nvidia-{flavour}-{kernel}") for kernel in kernel_flavours(node)]
    return (*kernels, StackPackage(f"nvidia-headless-no-dkms-{flavour}"), utils)


def fabric(node: StackNode, source: str, branch: Branch) -> tuple[StackPackage, ...]:
    """Return the packages for NVSwitches if the node has any. Their version must equal the version of the driver."""
    if not node.has_fabric:
        return ()
    suffix = f"-{branch.number}" if source == "ubuntu" or branch.fabric_suffixed else ""
    names = [f"nvidia-fabricmanager{suffix}", f"libnvidia-nscq{suffix}"]
    if any(chip.nvlink5 for chip in node.chips):
        names += [f"libnvsdm{suffix}", "nvlsm", "infiniband-diags"]
    return tuple(map(StackPackage, names))


def kernel_flavours(node: StackNode) -> tuple[str, ...]:
    plain = "generic" if node.distribution == "ubuntu" else ("arm64" if node.seen.machine == "aarch64" else "amd64")
    return node.seen.kernels or (plain,)


def headers(node: StackNode, build: str) -> tuple[StackPackage, ...]:
    """Return the packages with headers for every installed kernel and for kernels installed later."""
    return tuple(StackPackage(f"linux-headers-{kernel}") for kernel in kernel_flavours(node)) if build == "dkms" else ()


def cuda_toolkits(versions: tuple[str, ...]) -> tuple[StackPackage, ...]:
    """Return the packages of the toolkits.

    The packages cuda and cuda-13-0 are not used, because they also install a driver.
    """
    return tuple(StackPackage(f"cuda-toolkit-{version.replace('.', '-')}") for version in versions)


def nccl(table: VersionsTable, wanted: str, cuda: str) -> tuple[StackPackage, ...]:
    """Return the system's NCCL for nccl-tests: built for the same CUDA major version, and closest to PyTorch's NCCL."""
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


def dcgm(table: VersionsTable, node: StackNode, branch: int) -> tuple[StackPackage, ...]:
    """Return DCGM for the newest CUDA version that the driver supports. GPUs up to Volta also need DCGM for CUDA 12."""
    majors = [13] if branch >= numbers(table.floors["13"])[0] else [12]
    if node.only_proprietary and 12 not in majors:
        majors.append(12)
    parts = [f"datacenter-gpu-manager-4-cuda{major}" for major in majors]
    return tuple(StackPackage(name, table.dcgm) for name in ("datacenter-gpu-manager-4-core", *parts))


def parts_of(node: NodeStack, modes: Mapping[str, str], *, has_gpus: bool, rdma: bool) -> list[str]:
    """Return the roles that install or verify something on a node.

    modes: mode of each role (manage, verify or off) by option name. rdma: whether the node needs the role rdma.
    """
    requested = [part for part, packages in PARTS.items() if getattr(node, packages) or part == "nvidia_driver"]
    parts = [part for part in requested if has_gpus and modes[f"{part}_mode"] != "off"]
    return [RDMA, *parts] if has_gpus and rdma else parts


def needed(node: NodeStack, managed: Collection[str]) -> list[str]:
    """Return the names of the repositories that a node needs. managed: the parts that Muster installs on the node."""
    names = []
    if ("nvidia_driver" in managed and node.source == "nvidia") or {"cuda_toolkit", "nccl", "dcgm"} & set(managed):
        names.append("nvidia")
    if "container_toolkit" in managed:
        names.append("container_toolkit")
    if "nvidia_driver" in managed and node.source in ("debian", "ubuntu"):
        names.append(node.source)
    return names


def doca(uri: str, key: str) -> StackRepository:
    """Return NVIDIA's repository for DOCA. key: the verified signing key as text."""
    return {"name": "doca", "uri": uri if uri.endswith("/") else f"{uri}/", "key": key}


class StackRepository(TypedDict, total=False):
    """A repository for the module apt_repositories, which documents the fields."""

    name: str
    of_archive: list[str]
    uri: str
    label: str
    priority: int
    key: str
    key_urls: list[str]
    fingerprints: list[str]


def repository(name: str, row: Mapping[str, Any], *, uri: str, upstream: str, key: str) -> StackRepository:
    """Return the repository.

    row: its entry in roles/gpu_stack/files/repositories.yml. uri: its URI. upstream: NVIDIA's URI, from which the key
    is downloaded because a mirror may not have it. key: text of a key to trust instead of NVIDIA's, or "".
    """
    if "of_archive" in row:
        return {"name": name, "of_archive": row["of_archive"]}
    wanted: StackRepository = {
        "name": name,
        "uri": uri,
        "label": row.get("label", ""),
        "priority": row.get("priority", 0),
    }
    if key:
        return {**wanted, "key": key}
    places = dict.fromkeys(urljoin(base, path) for base in (uri, upstream) for path in row["keys"])
    return {**wanted, "key_urls": list(places), "fingerprints": list(row["keys"].values())}
