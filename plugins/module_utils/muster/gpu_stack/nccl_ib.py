"""Which RDMA adapters NCCL takes, and how it sends over them: the options nccl_ib_*, and what the fabric says. Pure.

The interface of the rendezvous is another matter (nccl_conf.py): it is Ethernet, as a rule, while the data go over the
adapters that are named here.
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
# GPUs in whose machines each QSFP cable is two adapters on the bus, in PCI domains of their own, of half its rate each.
# Source: NVIDIA's dgx-spark-playbooks, connect-two-sparks, and issue 102 there: 3 GB/s, and 23.7 with both named.
OF_HALVES = ("10de:2e12",)
# MAX_IB_DEVS of nccl, src/transport/net_ib.
MOST_HCAS = 32
# The highest bit of a partition key: two that are both without it may not talk to each other (InfiniBand Architecture
# Specification, volume 1, 10.9.3).
FULL_MEMBER = 0x8000
_HCA = re.compile(r"[A-Za-z0-9_.-]{1,63}(:\d{1,2})?")
_PKEY = re.compile(r"0x[0-9a-fA-F]{1,4}")


@dataclass(frozen=True)
class RdmaPort:
    """A port of an RDMA device. layer: InfiniBand or Ethernet. prefix: subnet of its first GID. rate: Gbit/s.

    pkeys: its table of partition keys, in order. slot: where its adapter is on the bus.
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
    """The options nccl_ib_*, each as text; empty for what is to be found out, or is left to NCCL."""

    hca: tuple[str, ...] = ()
    gid_index: str = ""
    pkey: str = ""
    traffic_class: str = ""
    service_level: str = ""

    @property
    def named(self) -> dict[str, str]:
        """What is given, by the variable that it becomes."""
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
    """Lines for NCCL, why each, and what was not decided."""

    lines: Mapping[str, str]
    reasons: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


def request_problems(options: Options, conf: object) -> Iterator[tuple[str, str]]:
    """Say what is wrong with the options, for which no node has to be looked at, and what to write instead."""
    for name in options.hca:
        if not _HCA.fullmatch(name):
            yield (
                f"nccl_ib_hca has {name!r}, which is no RDMA adapter",
                'Write it like mlx5_0 or "mlx5_1:1"',
            )
    if len(set(options.hca)) < len(options.hca) or len(options.hca) > MOST_HCAS:
        yield f"nccl_ib_hca names {len(options.hca)} adapters", f"Name each once, and no more than {MOST_HCAS}"
    for option, value, most in (
        ("nccl_ib_gid_index", options.gid_index, 255),
        ("nccl_ib_tc", options.traffic_class, 255),
        ("nccl_ib_sl", options.service_level, 15),
    ):
        if value and not (value.isascii() and value.isdigit() and int(value) <= most):
            yield f"{option} is {value!r}", f'Write a number from "0" to "{most}", or nothing'
    if options.pkey and not (_PKEY.fullmatch(options.pkey) and int(options.pkey, 16) & ~FULL_MEMBER):
        yield (
            f"nccl_ib_pkey is {options.pkey!r}",
            'Write the key of the partition, such as "0x8001"',
        )
    if options.named and conf in ("off", False):
        yield f'nccl_conf is "off", and {_option(options)} is set', "Set nccl_conf to auto, or leave the other empty"
    for name in options.named:
        if isinstance(conf, dict) and name in conf:
            yield f"nccl_conf has {name}, and the option for it is set as well", "Leave one of the two out"


def _option(options: Options) -> str:
    names = {HCA: "nccl_ib_hca", TRAFFIC_CLASS: "nccl_ib_tc", SERVICE_LEVEL: "nccl_ib_sl"}
    first = next(iter(options.named))
    return names.get(first, first.lower())


def problems(options: Options, ports: Sequence[RdmaPort]) -> Iterator[str]:
    """Say what a node does not have that the options name."""
    there = list(dict.fromkeys(port.device for port in ports))
    for name in options.hca:
        if not any(_is(port, name) for port in ports):
            has = f"it has only {', '.join(there)}" if there else "it has none"
            yield f"nccl_ib_hca names the RDMA adapter {name}, and {has}. Correct it on this node"
    used = [port for port in _used(options, ports) if port.layer == "InfiniBand"]
    if not options.pkey or not used:
        return
    places = {_name(port): _place(port, options.pkey) for port in used}
    for name, place in places.items():
        if place is None:
            keys = ", ".join(dict.fromkeys(next(port for port in used if _name(port) == name).pkeys)) or "none"
            yield (
                f"{name} is in no partition {options.pkey} (nccl_ib_pkey), but in {keys}. Have the subnet manager add "
                "it, or correct nccl_ib_pkey"
            )
    if len({place for place in places.values() if place is not None}) > 1:
        shown = ", ".join(f"{place} on {name}" for name, place in places.items())
        yield (
            f"the partition {options.pkey} (nccl_ib_pkey) has not one place in the tables of its adapters ({shown}), "
            "and NCCL knows but one for all. Name those of one place in nccl_ib_hca"
        )


def choose(options: Options, ports: Sequence[RdmaPort], *, automatic: bool, halves: bool) -> FabricOptions:
    """Return the lines. automatic: whether adapters are chosen that no option names. halves: see OF_HALVES."""
    lines: dict[str, str] = {}
    reasons: list[str] = []
    undecided: list[str] = []
    used = _used(options, ports)
    if options.hca:
        lines[HCA] = f"={','.join(options.hca)}"
        reasons.append("nccl_ib_hca says so")
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
    """Return the ports that NCCL takes: those that are active, and named where some are."""
    return [port for port in ports if port.active and (not options.hca or any(_is(port, name) for name in options.hca))]


def _best(ports: Sequence[RdmaPort], *, halves: bool) -> tuple[list[RdmaPort], str]:
    """Return the ports of the fastest of several fabrics, and why; where none is the fastest, only what to write."""
    fabrics = _fabrics(ports)
    if len(fabrics) < 2:
        both = fabrics.get("RoCE", [])
        if halves and len(both) > 1:
            return both, f"a cable of this machine is two adapters, and both halves are active: {_named(both)}"
        return [], ""
    speeds = {name: sum(port.rate for port in of_fabric) for name, of_fabric in fabrics.items()}
    best = max(fabrics, key=lambda name: speeds[name])
    known = ", ".join(f"{name} ({_named(of_it)}; {speeds[name]} Gbit/s)" for name, of_it in fabrics.items())
    if list(speeds.values()).count(speeds[best]) > 1:
        fix = "Name the adapters of the training: nccl_ib_hca: [mlx5_0, mlx5_1]"
        return [], f"it has several fabrics, and none is the fastest: {known}. {fix}"
    return fabrics[best], f"of its fabrics {best} is the fastest: {known}"


def _fabrics(ports: Sequence[RdmaPort]) -> dict[str, list[RdmaPort]]:
    """Return the active ports by what they are connected to. NCCL itself leaves out ports that are not active.

    InfiniBand's subnets differ in their prefix. On Ethernet nothing does: rails of one fabric have
    subnets of their own.
    """
    fabrics: dict[str, list[RdmaPort]] = defaultdict(list)
    prefixes = {port.prefix for port in ports if port.active and port.layer == "InfiniBand"}
    for port in sorted(ports, key=lambda each: (_natural(each.device), each.port)):
        if port.active:
            subnet = f" {port.prefix}" if port.layer == "InfiniBand" and len(prefixes) > 1 else ""
            fabrics["RoCE" if port.layer == "Ethernet" else f"{port.layer}{subnet}"].append(port)
    return dict(fabrics)


def _missing_halves(used: Sequence[RdmaPort], ports: Sequence[RdmaPort]) -> Iterator[str]:
    """Two halves of a cable have one place on the bus, in two domains of it."""
    for port in used:
        for other in ports:
            if other.active and other not in used and _place_in_domain(other) == _place_in_domain(port) != "":
                yield (
                    f"nccl_ib_hca names {port.device} and not {other.device}, the other half of the same cable: half "
                    f"of its rate stays unused. Add {other.device}"
                )


def _place_in_domain(port: RdmaPort) -> str:
    return port.slot.partition(":")[2]


def _partition(options: Options, used: Sequence[RdmaPort]) -> tuple[int | None, str]:
    """Return the place of the partition in the tables, and why; None where NCCL's own choice, the first, will do."""
    tables = [port for port in used if port.layer == "InfiniBand" and port.pkeys]
    if options.pkey:
        found = [place for port in tables if (place := _place(port, options.pkey)) is not None]
        return (found[0], f"the partition {options.pkey} has this place") if found else (None, "")
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
    why = "the node is a limited member of the first partition, whose nodes cannot reach each other"
    return full[0], f"{why}, and a full one of {tables[0].pkeys[full[0]]}"


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
