"""Choose the RDMA adapters and their NCCL settings from the options nccl_ib_* and the fabric. Pure functions.

The rendezvous uses a separate interface, usually Ethernet (nccl_conf.py). NCCL transfers its data over the adapters
chosen here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HCA = "NCCL_IB_HCA"
GID_INDEX, PKEY, TRAFFIC_CLASS, SERVICE_LEVEL = "NCCL_IB_GID_INDEX", "NCCL_IB_PKEY", "NCCL_IB_TC", "NCCL_IB_SL"
# GPUs of machines in which each QSFP cable is connected to two adapters in separate PCI domains, with half its rate
# each. Source: NVIDIA's dgx-spark-playbooks, connect-two-sparks, and issue 102 there: 3 GB/s, 23.7 with both adapters.
OF_HALVES = ("10de:2e12",)
# MAX_IB_DEVS of nccl, src/transport/net_ib
MOST_HCAS = 32
# The highest bit of a partition key. Two members without it may not communicate (InfiniBand Architecture Specification,
# volume 1, 10.9.3).
FULL_MEMBER = 0x8000
_HCA = re.compile(r"[A-Za-z0-9_.-]{1,63}(:\d{1,2})?")
_PKEY = re.compile(r"0x[0-9a-fA-F]{1,4}")


@dataclass(frozen=True)
class RdmaPort:
    """A port of an RDMA device. layer: InfiniBand or Ethernet. prefix: subnet prefix of its first GID. rate: Gbit/s.

    pkeys: the port's partition key table, in order. slot: PCI address of the adapter.
    """

    device: str
    port: int
    active: bool = True
    layer: str = "InfiniBand"
    prefix: str = "fe80:0000:0000:0000"
    rate: int = 0
    pkeys: tuple[str, ...] = ()
    slot: str = ""


@dataclass(frozen=True)
class Options:
    """The options nccl_ib_* as text; "" means that Muster chooses the value or that NCCL's default is used."""

    hca: tuple[str, ...] = ()
    gid_index: str = ""
    pkey: str = ""
    traffic_class: str = ""
    service_level: str = ""

    @property
    def named(self) -> dict[str, str]:
        """The options that are set, by the name of the NCCL variable."""
        every = {
            HCA: ",".join(self.hca),
            GID_INDEX: self.gid_index,
            PKEY: self.pkey,
            TRAFFIC_CLASS: self.traffic_class,
            SERVICE_LEVEL: self.service_level,
        }
        return {name: value for name, value in every.items() if value}


@dataclass(frozen=True)
class FabricOptions:
    """Lines for nccl.conf and the reasons for them, and decisions that are left to the user."""

    lines: Mapping[str, str]
    reasons: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


def request_problems(options: Options, conf: object) -> Iterator[tuple[str, str]]:
    """Yield (problem, fix) for errors in the options that can be detected without facts about the nodes."""
    for name in options.hca:
        if not _HCA.fullmatch(name):
            yield (
                f"nccl_ib_hca has {name!r}, which is not the name of an RDMA adapter",
                'Use a name such as mlx5_0 or "mlx5_1:1"',
            )
    if len(set(options.hca)) < len(options.hca) or len(options.hca) > MOST_HCAS:
        yield f"nccl_ib_hca lists {len(options.hca)} adapters", f"List at most {MOST_HCAS} adapters, each only once"
    for option, value, most in (
        ("nccl_ib_gid_index", options.gid_index, 255),
        ("nccl_ib_tc", options.traffic_class, 255),
        ("nccl_ib_sl", options.service_level, 15),
    ):
        if value and not (value.isascii() and value.isdigit() and int(value) <= most):
            yield f"{option} is {value!r}", f'Use a number from "0" to "{most}", or leave the option empty'
    if options.pkey and not (_PKEY.fullmatch(options.pkey) and int(options.pkey, 16) & ~FULL_MEMBER):
        yield (
            f"nccl_ib_pkey is {options.pkey!r}",
            'Use a partition key such as "0x8001"',
        )
    if options.named and conf in ("off", False):
        yield f'nccl_conf is "off", but {_option(options)} is set', "Set nccl_conf to auto, or leave the option empty"
    for name in options.named:
        if isinstance(conf, dict) and name in conf:
            yield f"{name} is set in nccl_conf and also by an nccl_ib_* option", "Remove one of the two settings"


def _option(options: Options) -> str:
    names = {HCA: "nccl_ib_hca", TRAFFIC_CLASS: "nccl_ib_tc", SERVICE_LEVEL: "nccl_ib_sl"}
    first = next(iter(options.named))
    return names.get(first, first.lower())


def problems(options: Options, ports: Sequence[RdmaPort]) -> Iterator[str]:
    """Yield a problem for each adapter or partition that an option names but the node does not have."""
    there = list(dict.fromkeys(port.device for port in ports))
    for name in options.hca:
        if not any(_is(port, name) for port in ports):
            has = f"the node has only {', '.join(there)}" if there else "the node has no RDMA adapter"
            yield f"nccl_ib_hca lists the RDMA adapter {name}, but {has}. Correct nccl_ib_hca for this node"
    used = [port for port in _used(options, ports) if port.layer == "InfiniBand"]
    if not options.pkey or not used:
        return
    places = {_name(port): _place(port, options.pkey) for port in used}
    for name, place in places.items():
        if place is None:
            keys = ", ".join(dict.fromkeys(next(port for port in used if _name(port) == name).pkeys)) or "none"
            yield (
                f"{name} is not a member of the partition {options.pkey} (nccl_ib_pkey); its partitions: {keys}. "
                "Add the port to the partition in the subnet manager, or correct nccl_ib_pkey"
            )
    if len({place for place in places.values() if place is not None}) > 1:
        shown = ", ".join(f"{place} on {name}" for name, place in places.items())
        yield (
            f"the partition {options.pkey} (nccl_ib_pkey) has different indexes on different adapters ({shown}), "
            "but NCCL uses one index for all adapters. List only adapters with the same index in nccl_ib_hca"
        )


def choose(options: Options, ports: Sequence[RdmaPort], *, automatic: bool, halves: bool) -> FabricOptions:
    """Return the lines for nccl.conf.

    automatic: whether to choose adapters if no option names them. halves: see OF_HALVES.
    """
    lines: dict[str, str] = {}
    reasons: list[str] = []
    undecided: list[str] = []
    used = _used(options, ports)
    if options.hca:
        lines[HCA] = f"={','.join(options.hca)}"
        reasons.append("requested by nccl_ib_hca")
        undecided += _missing_halves(used, ports) if halves else ()
    elif automatic:
        best, why = _best(ports, halves=halves)
        if best:
            used = best
            lines[HCA] = f"={_named(best)}"
            reasons.append(why)
        elif why:
            undecided.append(why)
    lines.update({name: value for name, value in options.named.items() if name not in (HCA, PKEY)})
    place, why = _partition(options, used)
    if place is not None:
        lines[PKEY] = str(place)
        reasons.append(why)
    return FabricOptions(lines, tuple(reasons), tuple(undecided))


def _used(options: Options, ports: Sequence[RdmaPort]) -> list[RdmaPort]:
    """Return the ports that NCCL uses: the active ports, limited to those in nccl_ib_hca if that option is set."""
    return [port for port in ports if port.active and (not options.hca or any(_is(port, name) for name in options.hca))]


def _best(ports: Sequence[RdmaPort], *, halves: bool) -> tuple[list[RdmaPort], str]:
    """Return (ports of the fastest fabric, reason). If no fabric is the fastest, return no ports and the fix."""
    fabrics = _fabrics(ports)
    if len(fabrics) < 2:
        both = fabrics.get("RoCE", [])
        if halves and len(both) > 1:
            return both, f"each cable of this machine connects two adapters, and both are active: {_named(both)}"
        return [], ""
    speeds = {name: sum(port.rate for port in of_fabric) for name, of_fabric in fabrics.items()}
    best = max(fabrics, key=lambda name: speeds[name])
    known = ", ".join(f"{name} ({_named(of_it)}; {speeds[name]} Gbit/s)" for name, of_it in fabrics.items())
    if list(speeds.values()).count(speeds[best]) > 1:
        fix = "Choose the adapters for training, for example nccl_ib_hca: [mlx5_0, mlx5_1]"
        return [], f"the node has several fabrics with the same total rate: {known}. {fix}"
    return fabrics[best], f"{best} is the fastest fabric of the node: {known}"


def _fabrics(ports: Sequence[RdmaPort]) -> dict[str, list[RdmaPort]]:
    """Return the active ports grouped by fabric. NCCL also ignores ports that are not active.

    InfiniBand fabrics have different subnet prefixes. Ethernet fabrics cannot be told apart, because even the rails of
    one fabric have different subnets.
    """
    fabrics: dict[str, list[RdmaPort]] = defaultdict(list)
    prefixes = {port.prefix for port in ports if port.active and port.layer == "InfiniBand"}
    for port in sorted(ports, key=lambda each: (_natural(each.device), each.port)):
        if port.active:
            subnet = f" {port.prefix}" if port.layer == "InfiniBand" and len(prefixes) > 1 else ""
            fabrics["RoCE" if port.layer == "Ethernet" else f"{port.layer}{subnet}"].append(port)
    return dict(fabrics)


def _missing_halves(used: Sequence[RdmaPort], ports: Sequence[RdmaPort]) -> Iterator[str]:
    """Yield a message about each unused active adapter that shares a cable with a used one.

    Their PCI addresses differ only in the domain.
    """
    for port in used:
        for other in ports:
            if other.active and other not in used and _place_in_domain(other) == _place_in_domain(port) != "":
                yield (
                    f"nccl_ib_hca lists {port.device} but not {other.device}, the second adapter of the same cable, so "
                    f"half of the cable's rate is unused. Add {other.device}"
                )


def _place_in_domain(port: RdmaPort) -> str:
    return port.slot.partition(":")[2]


def _partition(options: Options, used: Sequence[RdmaPort]) -> tuple[int | None, str]:
    """Return (index of the partition in the partition key tables, reason); None if the index is 0, which is NCCL's
    default.
    """
    tables = [port for port in used if port.layer == "InfiniBand" and port.pkeys]
    if options.pkey:
        found = [place for port in tables if (place := _place(port, options.pkey)) is not None]
        return (found[0], f"{PKEY} is the index of the partition {options.pkey}") if found else (None, "")
    if not tables or all(_key(port.pkeys[0]) & FULL_MEMBER for port in tables):
        return None, ""
    shortest = min(len(port.pkeys) for port in tables)
    full = [
        place
        for place in range(shortest)
        if len({_key(port.pkeys[place]) for port in tables}) == 1 and _key(tables[0].pkeys[place]) & FULL_MEMBER
    ]
    if len(full) != 1:
        return None, ""
    why = "the node is a limited member of the first partition, and limited members cannot communicate with each other"
    return full[0], f"{why}; the node is a full member of {tables[0].pkeys[full[0]]}"


def _place(port: RdmaPort, pkey: str) -> int | None:
    return next((place for place, key in enumerate(port.pkeys) if _key(key) == int(pkey, 16)), None)


def _key(text: str) -> int:
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,4}", text) else 0


def _is(port: RdmaPort, name: str) -> bool:
    return name in (port.device, _name(port))


def _name(port: RdmaPort) -> str:
    return f"{port.device}:{port.port}"


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _named(ports: Sequence[RdmaPort]) -> str:
    return ",".join(_name(port) for port in ports)
