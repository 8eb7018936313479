"""The addresses of RDMA ports: the GIDs that NCCL requires, and the InfiniBand partitions."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.commands import shell
from ..verdict.finding import evidence
from .rdma import active_ports, unused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

GID_INDEX_NAME = "NCCL_IB_GID_INDEX"
PKEY_NAME = "NCCL_IB_PKEY"
# With other values than these, NCCL requires another type of GID than RoCE v2 with IPv4 (NCCL's documentation).
OTHER_KIND = {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}
# InfiniBand Architecture Specification, volume 1, 10.9: the highest bit of a P_Key means full membership, and two
# members without it cannot communicate.
FULL = 0x8000

GID_MISSING = Check(
    "rdma.gid.missing",
    seen="stand-in",
    reads="the GIDs of active Ethernet ports (RoCE)",
    fires="warn: the port has no RoCE v2 GID with an IPv4 address, which NCCL requires",
    fix="Assign an IPv4 address to the adapter's interface",
)
GID_INDEX = Check(
    "rdma.gid.index",
    seen="stand-in",
    reads="NCCL_IB_GID_INDEX in nccl.conf, and the GIDs of the active ports",
    fires="fail: a port that NCCL would use has no GID at that index. warn: the GID is not a RoCE v2 GID with an "
    "IPv4 address, but another GID is (indexes change when addresses are added or removed)",
    fix="Leave nccl_ib_gid_index empty: NCCL 2.21 and newer select the GID",
)
PKEY_MISSING = Check(
    "rdma.pkey.missing",
    seen="stand-in",
    reads="the partitions (P_Keys) of active InfiniBand ports, and NCCL_IB_PKEY in nccl.conf, which is an index",
    fires="fail: the port has no partition at the index that NCCL uses, so connections are impossible",
    fix="On the subnet manager, make the port a member of the partition (partitions.conf of opensm)",
)
PKEY_PARTIAL = Check(
    "rdma.pkey.partial",
    seen="stand-in",
    reads="the partition (P_Key) of active InfiniBand ports that NCCL uses",
    fires="warn: the port is a limited member (bit 15 is 0), and two limited members cannot communicate "
    "(InfiniBand Architecture Specification, volume 1, 10.9)",
    fix="On the subnet manager, make the port a full member of the partition (partitions.conf of opensm)",
)
CHECKS = (GID_MISSING, GID_INDEX, PKEY_MISSING, PKEY_PARTIAL)
LOOKS = ("rdma",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    if why := unused(facts, request):
        yield from skip_all(CHECKS, why)
        return
    # GIDs of iWARP adapters have no type, and NCCL does not require one.
    roce = [
        port
        for port in active_ports(facts, "Ethernet")
        if not port["gids"] or any(gid["type"] for gid in port["gids"].values())
    ]
    yield from _gids(node, roce, facts["rdma"]["settings"])
    yield from _partitions(node, active_ports(facts, "InfiniBand"), facts["rdma"]["settings"])


def _gids(node: str, ports: list[dict[str, Any]], settings: Mapping[str, str]) -> Iterator[Said]:
    other = [f"{name}={settings[name]}" for name, usual in OTHER_KIND.items() if settings.get(name, usual) != usual]
    if not ports or other:
        why = f"{', '.join(other)} requests another type of GID" if other else "no active RoCE port"
        yield from skip_all((GID_MISSING, GID_INDEX), why)
        return
    index = settings.get(GID_INDEX_NAME, "-1").strip()
    if not index.isdigit():
        yield GID_INDEX.skip(f"{GID_INDEX_NAME} is not set, so NCCL selects the GID")
    for port in ports:
        routable = [number for number, gid in port["gids"].items() if is_routable(gid)]
        shown = ", ".join(f"{number}: {gid['gid']} ({gid['type']})" for number, gid in port["gids"].items()) or "none"
        if not routable:
            yield GID_MISSING.warn(
                node,
                f"{port['name']} has no RoCE v2 GID with an IPv4 address, which NCCL requires",
                "Assign an IPv4 address to the interface of the port. Show the interfaces with",
                "rdma link show && ip -br addr",
                observed=shown,
                expected="RoCE v2, ::ffff:a.b.c.d",
            )
        if index.isdigit():
            yield from _index(node, port, index, routable, shown)


def _index(node: str, port: Mapping[str, Any], index: str, routable: list[str], shown: str) -> Iterator[Said]:
    gid = port["gids"].get(index)
    if gid is not None and (index in routable or not routable):
        return
    kind = f"is {gid['gid']} ({gid['type']})" if gid else "is empty"
    yield (GID_INDEX.warn if gid else GID_INDEX.fail)(
        node,
        f"nccl.conf sets {GID_INDEX_NAME}={index}, but GID {index} of {port['name']} {kind}",
        "Remove the index from nccl_ib_gid_index or nccl_conf. Show the GIDs with",
        shell(
            "grep -H . /sys/class/infiniband/{device}/ports/{port}/gids/*",
            device=port["device"],
            port=port["name"].partition(":")[2],
        ),
        observed=shown,
        expected=f"index {' or '.join(routable)}" if routable else "a GID",
        evidence=evidence("nccl.conf", f"{GID_INDEX_NAME}={index}"),
    )


def is_routable(gid: Mapping[str, str]) -> bool:
    """Return whether a GID belongs to RoCE v2 and contains an IPv4 address."""
    try:
        address = ipaddress.IPv6Address(gid["gid"])
    except ValueError:
        return False
    return gid["type"].replace(" ", "").lower() == "rocev2" and address.ipv4_mapped is not None


def _partitions(node: str, ports: list[dict[str, Any]], settings: Mapping[str, str]) -> Iterator[Said]:
    if not any(port["pkeys"] for port in ports):
        why = "the partitions of the InfiniBand ports cannot be read" if ports else "no active InfiniBand port"
        yield from skip_all((PKEY_MISSING, PKEY_PARTIAL), why)
        return
    for port in ports:
        index, pkey = used_partition(port, settings)
        shown = ", ".join(f"{number}: {value}" for number, value in port["pkeys"].items()) or "none"
        folder = f"/sys/class/infiniband/{port['device']}/ports/{port['name'].partition(':')[2]}/pkeys"
        if pkey is None:
            yield PKEY_MISSING.fail(
                node,
                f"{port['name']} has no partition at index {index}, which NCCL uses",
                "On the subnet manager, make the port a member, or select another partition (nccl_ib_pkey). "
                "Show the port's partitions with",
                shell("grep -H . {folder}/*", folder=folder),
                observed=shown,
                expected=f"a P_Key at index {index}",
            )
        elif not pkey & FULL:
            yield PKEY_PARTIAL.warn(
                node,
                f"{port['name']} is a limited member of the partition {pkey:#06x}, and limited members cannot "
                "communicate with each other",
                "On the subnet manager, make the port a full member. Show the port's partitions with",
                shell("grep -H . {folder}/*", folder=folder),
                observed=shown,
                expected=f"{pkey | FULL:#06x}",
            )


def used_partition(port: Mapping[str, Any], settings: Mapping[str, str]) -> tuple[str, int | None]:
    """Return the partition index that NCCL uses, and the P_Key at this index, or None if it is unknown."""
    said = settings.get(PKEY_NAME, "0").strip()
    index = said if said.isdigit() else "0"
    try:
        return index, int(port["pkeys"][index], 16)
    except (KeyError, ValueError):
        return index, None
