"""What a node with an RDMA adapter is given for NCCL: whose user space, which kernel modules, and why. Pure.

NCCL opens libibverbs at run time, and where it is not there it takes sockets without a word. The wheels of PyTorch do
not bring it: it comes with the system, from the distribution or from NVIDIA's DOCA, and never from both.
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
    """What is called what (roles/rdma/vars/main.yml). of_driver: the module that makes an adapter an RDMA device."""

    packages: tuple[str, ...]
    doca: tuple[str, ...]
    modules: tuple[str, ...]
    of_infiniband: tuple[str, ...]
    of_driver: Mapping[str, str]


@dataclass(frozen=True)
class RdmaRequest:
    """What the inventory asks for (roles/rdma/meta/argument_specs.yml)."""

    mode: str = "manage"
    userspace: str = "auto"


@dataclass(frozen=True)
class RdmaNodeFacts:
    """The node. rdma: its facts (muster/inspect/rdma.py); None where nobody looked. has_gpus: to train on."""

    node: str
    rdma: Mapping[str, Any] | None
    has_gpus: bool
    distribution: str = ""
    container: bool = False


@dataclass(frozen=True)
class RdmaPart:
    """source: distribution, doca, kept (what is there stays), or nothing. load: those of its modules to be loaded."""

    source: str = ""
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    load: tuple[str, ...] = ()
    why: str = ""
    refusals: tuple[Refusal, ...] = field(default=())

    @property
    def is_due(self) -> bool:
        """Whether the role has something to do or to judge there."""
        return bool(self.source or self.refusals)


def request_problems(userspace: str, url: str, key: str) -> Iterator[tuple[str, str]]:
    """Say what no node has to be looked at for, and what to write instead."""
    if userspace == DOCA:
        for name, value, what in (
            (
                "rdma_doca_url",
                url,
                "the address of NVIDIA's DOCA repository for the nodes' system, or of a mirror of it",
            ),
            ("rdma_doca_key", key, "the file on the controller that holds the key which it is signed with"),
        ):
            if not value:
                yield f"rdma_userspace is doca, and {name} is empty", f"Set {name} to {what}"
    if url and not url.startswith(("https://", "http://", "file:/")):
        yield f"rdma_doca_url is {url!r}, which is no address", "Write it as https://HOST/PATH"


def decide(table: RdmaTable, request: RdmaRequest, seen: RdmaNodeFacts) -> RdmaPart:
    """Return what the node is given; nothing where there is no adapter, or nobody on the node who could use one."""
    rdma = seen.rdma
    if not rdma or not (rdma["adapters"] or rdma["ports"]):
        return RdmaPart(why="it has no RDMA adapter")
    if not seen.has_gpus:
        return RdmaPart(why="NCCL alone uses it, and the node has no GPUs")
    if request.mode == "off":
        return RdmaPart(why='rdma_mode is "off"')
    if rdma["stack"]:
        return _beside(request, seen, rdma["stack"])
    # A container has its host's kernel, and can load nothing into it.
    modules = () if seen.container else wanted_modules(table, rdma)
    missing = [name for name in modules if name not in (*rdma["known"], *rdma["loaded"])]
    load = tuple(name for name in modules if name not in rdma["loaded"])
    if request.userspace == DOCA:
        return RdmaPart(DOCA, table.doca, modules, load, why="rdma_userspace asks for it")
    extra: tuple[str, ...] = ()
    if missing and seen.distribution != "ubuntu":
        fix = "Boot the distribution's standard kernel: those for clouds are built without it"
        why = f"its kernel {rdma['kernel']} has no module {few(missing)}, without which its RDMA adapter cannot be used"
        return RdmaPart(why=why, refusals=(Refusal(seen.node, why, fix),))
    if missing:
        # Ubuntu's kernels for clouds and virtual machines leave what few need to a package of its own.
        extra = (f"linux-modules-extra-{rdma['kernel']}",)
    return RdmaPart(
        DISTRIBUTION,
        (*table.packages, *extra),
        modules,
        load,
        why="NCCL takes sockets where libibverbs is missing",
    )


def _beside(request: RdmaRequest, seen: RdmaNodeFacts, stack: str) -> RdmaPart:
    """Decide beside a stack of NVIDIA's that is there: its libraries and modules fit each other, and no others."""
    is_doca = stack.startswith("DOCA")
    fix = ""
    if request.userspace == DISTRIBUTION:
        remove = "sudo apt-get purge 'doca-*' 'mlnx-*'" if is_doca else "sudo /usr/sbin/ofed_uninstall.sh --force"
        fix = f"Set rdma_userspace to auto to keep it, or take it away first: {remove}"
    elif request.userspace == DOCA and not is_doca:
        fix = "Set rdma_userspace to auto to keep it, or take it away first: sudo /usr/sbin/ofed_uninstall.sh --force"
    if fix:
        why = f"it has {stack}, and rdma_userspace is {request.userspace}: the two cannot be mixed"
        return RdmaPart(why=why, refusals=(Refusal(seen.node, why, fix),))
    return RdmaPart("kept", why=f"{stack} is there, and stays as it is")


def wanted_modules(table: RdmaTable, rdma: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kernel modules, in the order in which one needs the other."""
    drivers = dict.fromkeys(adapter["driver"] for adapter in rdma["adapters"])
    of_adapters = [table.of_driver[driver] for driver in drivers if driver in table.of_driver]
    infiniband = any(adapter["infiniband"] for adapter in rdma["adapters"]) or any(
        port["layer"] == "InfiniBand" for port in rdma["ports"]
    )
    return (*of_adapters, *table.modules, *(table.of_infiniband if infiniband else ()))


def describe(part: RdmaPart, rdma: Mapping[str, Any]) -> str:
    """Say in one line what a node has, and what the step is going to do about it."""
    if not (rdma["adapters"] or rdma["ports"]):
        return ""
    if part.refusals:
        then = f"{part.why}. {part.refusals[0].fix}"
    elif not part.is_due:
        then = f"left alone: {part.why}"
    elif part.source == "kept":
        then = part.why
    else:
        missing = [name for name in part.packages if name not in rdma["packages"]]
        todo = [f"installs {few(missing)}"] if missing else []
        todo += [f"loads {few(part.load)}"] if part.load else []
        then = f"the step gpu_stack {' and '.join(todo)}" if todo else "what NCCL opens is there"
    return f"{_ports(rdma)}; {then}"


def _ports(rdma: Mapping[str, Any]) -> str:
    active = [port for port in rdma["ports"] if port["active"]]
    if not rdma["ports"]:
        return f"{plural(len(rdma['adapters']), 'RDMA adapter')} on the bus, and the kernel shows none as a device"
    kinds: dict[str, list[str]] = {}
    for port in active:
        kind = "RoCE" if port["layer"] == "Ethernet" else port["layer"]
        rate = f"{port['rate']} Gbit/s" if port["rate"] else "unknown rate"
        kinds.setdefault(f"{kind} {rate}", []).append(f"{port['device']}:{port['port']}")
    shown = "; ".join(f"{few(names)} ({kind})" for kind, names in kinds.items()) or "none"
    return f"{len(active)} of {plural(len(rdma['ports']), 'RDMA port')} active: {shown}"
