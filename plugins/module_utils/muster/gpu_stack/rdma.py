"""Choose the RDMA libraries and kernel modules for NCCL on a node with an RDMA adapter. Pure functions.

NCCL opens libibverbs at run time. If the library is missing, NCCL silently falls back to sockets. PyTorch wheels do not
contain the library. Muster installs it either from the distribution or from NVIDIA's DOCA, never from both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..verdict.words import few, plural
from .model import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DISTRIBUTION, DOCA = "distribution", "doca"


@dataclass(frozen=True)
class RdmaTable:
    """Package and module names (roles/rdma/vars/main.yml).

    of_driver: for each driver, the module that creates the RDMA device of an adapter.
    """

    packages: tuple[str, ...]
    doca: tuple[str, ...]
    modules: tuple[str, ...]
    of_infiniband: tuple[str, ...]
    of_driver: Mapping[str, str]


@dataclass(frozen=True)
class RdmaRequest:
    """The request from the inventory (roles/rdma/meta/argument_specs.yml)."""

    mode: str = "manage"
    userspace: str = "auto"


@dataclass(frozen=True)
class RdmaNodeFacts:
    """Facts about a node.

    rdma: its RDMA facts (muster/inspect/rdma.py); None if not inspected. has_gpus: whether it has GPUs for training.
    """

    node: str
    rdma: Mapping[str, Any] | None
    has_gpus: bool
    distribution: str = ""
    container: bool = False


@dataclass(frozen=True)
class RdmaPart:
    """The RDMA packages and modules of a node.

    source: distribution, doca, kept (the installed stack is kept), or "". load: modules that must be loaded.
    """

    source: str = ""
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    load: tuple[str, ...] = ()
    why: str = ""
    refusals: tuple[Refusal, ...] = field(default=())

    @property
    def is_due(self) -> bool:
        """Return whether the role has something to install or verify on the node."""
        return bool(self.source or self.refusals)


def request_problems(userspace: str, url: str, key: str) -> Iterator[tuple[str, str]]:
    """Yield (problem, fix) for errors in the options that can be detected without facts about the nodes."""
    if userspace == DOCA:
        for name, value, what in (
            (
                "rdma_doca_url",
                url,
                "the URL of NVIDIA's DOCA repository for the nodes' operating system, or of a mirror",
            ),
            ("rdma_doca_key", key, "the file on the controller with the signing key of the repository"),
        ):
            if not value:
                yield f"rdma_userspace is doca, but {name} is empty", f"Set {name} to {what}"
    if url and not url.startswith(("https://", "http://", "file:/")):
        yield f"rdma_doca_url is {url!r}, which is not a URL", "Use the form https://HOST/PATH"


def decide(table: RdmaTable, request: RdmaRequest, seen: RdmaNodeFacts) -> RdmaPart:
    """Return the packages and modules for the node; none for a node without RDMA adapters or without GPUs."""
    rdma = seen.rdma
    if not rdma or not (rdma["adapters"] or rdma["ports"]):
        return RdmaPart(why="the node has no RDMA adapter")
    if not seen.has_gpus:
        return RdmaPart(why="the node has no GPUs, and only NCCL uses RDMA")
    if request.mode == "off":
        return RdmaPart(why='rdma_mode is "off"')
    if rdma["stack"]:
        return _beside(request, seen, rdma["stack"])
    # A container cannot load modules into the kernel of its host.
    modules = () if seen.container else wanted_modules(table, rdma)
    missing = [name for name in modules if name not in (*rdma["known"], *rdma["loaded"])]
    load = tuple(name for name in modules if name not in rdma["loaded"])
    if request.userspace == DOCA:
        return RdmaPart(DOCA, table.doca, modules, load, why="requested by rdma_userspace")
    extra: tuple[str, ...] = ()
    if missing and seen.distribution != "ubuntu":
        fix = "Boot the distribution's standard kernel: cloud kernels are built without these modules"
        why = f"the kernel {rdma['kernel']} does not have the module that the RDMA adapter requires: {few(missing)}"
        return RdmaPart(why=why, refusals=(Refusal(seen.node, why, fix),))
    if missing:
        # For Ubuntu's kernels for clouds and virtual machines, rarely used modules are in a separate package.
        extra = (f"linux-modules-extra-{rdma['kernel']}",)
    return RdmaPart(
        DISTRIBUTION,
        (*table.packages, *extra),
        modules,
        load,
        why="without libibverbs, NCCL uses sockets instead of RDMA",
    )


def _beside(request: RdmaRequest, seen: RdmaNodeFacts, stack: str) -> RdmaPart:
    """Decide for a node on which an NVIDIA stack is installed.

    Its libraries and modules cannot be mixed with those of other sources.
    """
    is_doca = stack.startswith("DOCA")
    fix = ""
    if request.userspace == DISTRIBUTION:
        remove = "sudo apt-get purge 'doca-*' 'mlnx-*'" if is_doca else "sudo /usr/sbin/ofed_uninstall.sh --force"
        fix = f"Set rdma_userspace to auto to keep it, or remove it first: {remove}"
    elif request.userspace == DOCA and not is_doca:
        fix = "Set rdma_userspace to auto to keep it, or remove it first: sudo /usr/sbin/ofed_uninstall.sh --force"
    if fix:
        why = f"{stack} is installed, but rdma_userspace is {request.userspace}, and the two cannot be mixed"
        return RdmaPart(why=why, refusals=(Refusal(seen.node, why, fix),))
    return RdmaPart("kept", why=f"{stack} is already installed and is kept")


def wanted_modules(table: RdmaTable, rdma: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the required kernel modules in dependency order."""
    drivers = dict.fromkeys(adapter["driver"] for adapter in rdma["adapters"])
    of_adapters = [table.of_driver[driver] for driver in drivers if driver in table.of_driver]
    infiniband = any(adapter["infiniband"] for adapter in rdma["adapters"]) or any(
        port["layer"] == "InfiniBand" for port in rdma["ports"]
    )
    return (*of_adapters, *table.modules, *(table.of_infiniband if infiniband else ()))


def describe(part: RdmaPart, rdma: Mapping[str, Any]) -> str:
    """Return one line about the node's RDMA ports and about what the step gpu_stack does on the node."""
    if not (rdma["adapters"] or rdma["ports"]):
        return ""
    if part.refusals:
        then = f"{part.why}. {part.refusals[0].fix}"
    elif not part.is_due:
        then = f"unchanged: {part.why}"
    elif part.source == "kept":
        then = part.why
    else:
        missing = [name for name in part.packages if name not in rdma["packages"]]
        todo = [f"installs {few(missing)}"] if missing else []
        todo += [f"loads {few(part.load)}"] if part.load else []
        then = f"the step gpu_stack {' and '.join(todo)}" if todo else "the RDMA libraries for NCCL are installed"
    return f"{_ports(rdma)}; {then}"


def _ports(rdma: Mapping[str, Any]) -> str:
    active = [port for port in rdma["ports"] if port["active"]]
    if not rdma["ports"]:
        return f"{plural(len(rdma['adapters']), 'RDMA adapter')} on the bus, but the kernel has no RDMA device"
    kinds: dict[str, list[str]] = {}
    for port in active:
        kind = "RoCE" if port["layer"] == "Ethernet" else port["layer"]
        rate = f"{port['rate']} Gbit/s" if port["rate"] else "unknown rate"
        kinds.setdefault(f"{kind} {rate}", []).append(f"{port['device']}:{port['port']}")
    shown = "; ".join(f"{few(names)} ({kind})" for kind, names in kinds.items()) or "none"
    return f"{len(active)} of {plural(len(rdma['ports']), 'RDMA port')} active: {shown}"
