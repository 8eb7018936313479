"""Compare the transports that the ranks used according to NCCL with the transports that the hardware offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.words import few
from .collectives import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .reports import Reports

SOCKETS = Check(
    "smoke.sockets",
    seen="stand-in",
    reads='"Using network" in the output of NCCL with NCCL_DEBUG=INFO, and the ports under /sys/class/infiniband',
    fires="fail: NCCL uses sockets, although this node and another node of the launch have active RDMA ports. The "
    "finding reports the likely cause from the NCCL log",
    fix="Fix the cause named in the finding, so that NCCL uses the adapters",
)
DIRECT = Check(
    "smoke.gpudirect",
    seen="stand-in",
    reads='"via NET/..." in the NCCL log, with or without GDRDMA at the end, and whether nvidia_peermem is loaded',
    fires="warn: RDMA data passes through host memory. GeForce and GB10 have no GPUDirect RDMA and are not evaluated",
    fix="Use DMA-BUF, or load nvidia_peermem, which NVIDIA has deprecated: sudo modprobe nvidia-peermem",
)
LINKS = Check(
    "smoke.links",
    seen="stand-in",
    reads='"via P2P/...", "via SHM/..." and the link types of the rings ("type NVL/...") in the NCCL log; '
    "nvidia-smi topo -m",
    fires="warn: all GPUs of the node are connected by NVLink, but ranks use shared memory, PCIe or the network",
    fix="Remove the variable named in the finding, or check the links: nvidia-smi topo -m",
)
INTERFACE = Check(
    "smoke.interface",
    seen="sandbox",
    reads="the TCP connections of each rank under Gloo, from /proc of its process, except those to the store",
    fires="warn: a connection uses a different interface and address than planned (cluster_interface, cluster_address)",
    fix="Remove GLOO_SOCKET_IFNAME from the environment of the ranks",
)
CHECKS = (SOCKETS, DIRECT, LINKS, INTERFACE)

STAGE = "transport"
NO_DIRECT = ("GeForce", "GB10")
NVLINK_KINDS = ("NVL", "NVB", "C2C")
MOST_PAIRS = 4096


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    facts = reports.facts(STAGE)
    if reports.plan.backend != "nccl":
        yield from interfaces(reports, facts)
        return
    why_not = next(
        (said["why_not"] for said in facts.values() if isinstance(said.get("why_not"), str) and said["why_not"]), ""
    )
    if why_not:
        for check in (SOCKETS, DIRECT, LINKS):
            yield check.skip(f"the NCCL log was not read: {why_not[:160]}")
        return
    if not all(isinstance(facts.get(rank, {}).get("net"), str) and facts[rank]["net"] for rank in reports.places):
        yield SOCKETS.unknown(reports.head, "some ranks did not report the network that NCCL uses", fix="")
    yield from sockets(reports, facts)
    yield from direct(reports, facts)
    yield from links(reports, facts)


def by_node(reports: Reports) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, place in reports.places.items():
        found.setdefault(place.node, []).append(rank)
    return found


def offered(facts: Mapping[int, Mapping[str, Any]], ranks: list[int]) -> Mapping[str, Any]:
    """Return the transports that the node's hardware offers, as reported by one of its ranks."""
    found = (facts.get(rank, {}).get("offered") for rank in ranks)
    return next((said for said in found if isinstance(said, dict)), {})


def active(said: Mapping[str, Any]) -> list[str]:
    return [str(port.get("name"))[:40] for port in listed(said.get("adapters")) if port.get("active") is True]


def channels(reports: Reports, said: Mapping[str, Any], *, inside: bool) -> list[Mapping[str, Any]]:
    """Return the channels between ranks of one node (inside), or those between nodes."""
    found = []
    for channel in listed(said.get("channels")):
        ends = [channel.get("from"), channel.get("to")]
        nodes = [reports.places[end].node for end in ends if isinstance(end, int) and end in reports.places]
        if len(nodes) == 2 and ends[0] != ends[1] and (nodes[0] == nodes[1]) == inside:
            found.append(channel)
    return found


def reasons(facts: Mapping[int, Mapping[str, Any]], ranks: list[int]) -> list[str]:
    found = (facts.get(rank, {}).get("reasons") for rank in ranks)
    return list(dict.fromkeys(str(one)[:160] for said in found if isinstance(said, list) for one in said))


def set_by(said: list[str], *names: str) -> str:
    """Return the first of these variables that disables a transport according to the NCCL log; "" if none does."""
    for name in names:
        line = next((one for one in said if one.startswith(f"{name} set")), "")
        value = line.rstrip(".").rpartition(" ")[2]
        if line and value not in ("0", "IB", "-2", "-1"):
            return name
    return ""


def sockets(reports: Reports, facts: Mapping[int, Mapping[str, Any]]) -> Iterator[Said]:
    nodes = by_node(reports)
    able = {node: ports for node, ranks in nodes.items() if (ports := active(offered(facts, ranks)))}
    bad = False
    for node, ranks in nodes.items():
        slow = [rank for rank in ranks if facts.get(rank, {}).get("net") == "Socket"]
        if not slow or node not in able or len(able) < 2:
            continue
        bad = True
        said = reasons(facts, ranks)
        why, fix, command = reason_of(said, able[node])
        who = f"ranks {few([str(rank) for rank in slow])}" if len(slow) > 1 else f"rank {slow[0]}"
        yield SOCKETS.fail(
            node,
            f"{who} use sockets, although {few(able[node])} is active: {why}"
            if len(slow) > 1
            else f"{who} uses sockets, although {few(able[node])} is active: {why}",
            fix,
            command,
            observed="NET/Socket",
            expected="NET/IB",
            evidence=evidence("NCCL", "; ".join(said)[:400]),
        )
    names = list(dict.fromkeys(net[:40] for said in facts.values() if isinstance(net := said.get("net"), str) and net))
    if not bad and names:
        text = f"NCCL uses {few(names)}" + ("" if able else "; no node has an active RDMA port")
        yield reports.good(SOCKETS, text, whole=reports.whole(STAGE, "net"))


def reason_of(said: list[str], ports: list[str]) -> tuple[str, str, str]:
    """Return (cause, fix, command) for ranks whose NCCL uses sockets although RDMA is available."""
    if name := set_by(said, "NCCL_IB_DISABLE", "NCCL_NET"):
        text = f"Remove {name} from launch_env or from the file that sets it"
        return f"{name} is set", text, shell("grep -n {name} /etc/nccl.conf ~/.nccl.conf", name=name)
    words = "\n".join(said)
    if "Failed to open lib" in words:
        text = "Install the library on the node, or set health_verbs and run the step gpu_stack again"
        return "NCCL could not open libibverbs.so", text, "sudo apt-get install libibverbs1 ibverbs-providers"
    if "Unable to open device" in words or "Call to ibv_" in words:
        return "the rank has no permission to open the adapter", "Check the device permissions", "ls -l /dev/infiniband"
    if any(port.startswith("efa") for port in ports):
        return (
            "NCCL has no plugin for EFA",
            "Install aws-ofi-nccl (included in the EFA installer), and check that ldconfig lists the library",
            "ldconfig -p",
        )
    if "Failed to initialize NET plugin" in words or "Plugin load" in words:
        return (
            "NCCL could not load its network plugin",
            "Check the NCCL lines in the evidence, and the installed libraries",
            "ldconfig -p",
        )
    if "No device found" in words:
        text = "Check whether the node has the RDMA ports that NCCL_IB_HCA selects"
        return "NCCL found no RDMA device", text, "ibv_devinfo"
    return (
        "the NCCL log contains no reason",
        "Set NCCL_DEBUG=INFO in launch_env, and check the first NCCL lines of the log and the adapters",
        "ibv_devinfo",
    )


def direct(reports: Reports, facts: Mapping[int, Mapping[str, Any]]) -> Iterator[Said]:
    """Find ranks that use RDMA without GPUDirect. Their data passes through host memory."""
    seen = good = 0
    for node, ranks in by_node(reports).items():
        without = []
        for rank in ranks:
            across = [one for one in channels(reports, facts.get(rank, {}), inside=False) if one.get("kind") == "net"]
            across = [one for one in across if not str(one.get("via")).startswith("NET/Socket")]
            model = str(reports.facts("world").get(rank, {}).get("device"))
            if across and not any(name in model for name in NO_DIRECT):
                seen += 1
                without += [] if any(one.get("gdr") is True for one in across) else [rank]
        good += len(ranks) - len(without)
        if not without:
            continue
        said, has = reasons(facts, ranks), offered(facts, ranks)
        if name := set_by(said, "NCCL_NET_GDR_LEVEL"):
            why, fix, command = (
                f"{name} is set",
                f"Remove {name} from the file that sets it",
                shell("grep -n {name} /etc/nccl.conf", name=name),
            )
        elif has.get("peermem") is False:
            why, fix, command = (
                "nvidia_peermem is not loaded",
                "Use open kernel modules and a kernel with DMA-BUF, or load nvidia_peermem (deprecated)",
                "",
            )
            command = "sudo modprobe nvidia_peermem"
        elif any(one.startswith("GPU Direct RDMA Disabled for GPU") for one in said):
            why, fix = "NCCL reports that GPU and adapter are too far apart", "Check how they are connected"
            command = "nvidia-smi topo -m"
        else:
            why, fix = "NCCL reports GPUDirect as disabled for the adapter", "Check the kernel log for nvidia_peermem"
            command = "sudo dmesg"
        who = few([reports.named(rank) for rank in without])
        yield DIRECT.warn(
            node,
            f"{who}: RDMA without GPUDirect: {why}",
            fix,
            command,
            evidence=evidence("NCCL", "; ".join(said)[:400]),
        )
    if seen and good == len(reports.places):
        yield DIRECT.passed(reports.head, "GPUDirect RDMA is in use")
    elif not seen:
        yield DIRECT.skip("no rank uses RDMA from a GPU with GPUDirect")


def links(reports: Reports, facts: Mapping[int, Mapping[str, Any]]) -> Iterator[Said]:
    """Check that the GPUs of one node communicate over NVLink."""
    seen, bad = False, False
    for node, ranks in by_node(reports).items():
        if len(ranks) < 2 or offered(facts, ranks).get("nvlink") is not True:
            continue
        seen = True
        odd: dict[str, list[int]] = {}
        for rank in ranks:
            said = facts.get(rank, {})
            ways = {
                str(one.get("via"))[:40]
                for one in channels(reports, said, inside=True)
                if one.get("kind") in ("shm", "net")
            }
            graph = said.get("graph")
            kind = str(graph[0]) if isinstance(graph, list) and graph else "NVL"
            if not ways and kind not in NVLINK_KINDS:
                ways = {f"P2P over {kind[:8]}"}
            for way in ways:
                odd.setdefault(way, []).append(rank)
        if odd:
            bad = True
            said_by = reasons(facts, ranks)
            name = set_by(said_by, "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
            why = (
                f": {name} is set"
                if name
                else next((f": NCCL reports {one}" for one in said_by if "P2P is disabled" in one), "")
            )
            ways_text = "; ".join(
                f"{way} (ranks {few([str(rank) for rank in those])})" for way, those in sorted(odd.items())
            )
            yield LINKS.warn(
                node,
                f"the GPUs have NVLink, but the ranks use {ways_text}{why}",
                f"Remove {name} from the file that sets it" if name else "Check the links and the NCCL log",
                shell("grep -n {name} /etc/nccl.conf ~/.nccl.conf", name=name) if name else "nvidia-smi topo -m",
                evidence=evidence("NCCL", "; ".join(said_by)[:400]),
            )
    if seen and not bad:
        yield LINKS.passed(reports.head, "the ranks of each node use NVLink")
    elif not seen:
        yield LINKS.skip("no node has NVLink between all of its GPUs")


def interfaces(reports: Reports, facts: Mapping[int, Mapping[str, Any]]) -> Iterator[Said]:
    """Check that Gloo uses the interface that the plan specifies."""
    nodes = reports.plan.by_node()
    bad, used = False, {}
    for node, ranks in by_node(reports).items():
        interface, address = nodes[node].interface, nodes[node].address
        odd: dict[tuple[str, str], list[int]] = {}
        for rank in ranks:
            for one in listed(facts.get(rank, {}).get("sockets")):
                name, own = str(one.get("interface"))[:16], str(one.get("address"))[:46]
                used[name] = True
                if address and own != address and not (interface and name == interface):
                    odd.setdefault((name, own), []).append(rank)
        for (name, own), those in odd.items():
            bad = True
            planned = f"{interface} ({address})" if interface else address
            who = few([reports.named(rank) for rank in dict.fromkeys(those)])
            yield INTERFACE.warn(
                node,
                f"{who}: Gloo uses {name or 'an unnamed interface'} ({own}) instead of {planned}",
                "Look for GLOO_SOCKET_IFNAME in launch_env and in the environment of the training user",
                "grep -rn GLOO_SOCKET_IFNAME /etc/environment /etc/profile.d",
                observed=own,
                expected=str(address),
            )
    if not bad:
        over = f"Gloo uses {few(sorted(used))}" if used else "Gloo communicates only inside the node"
        yield reports.good(INTERFACE, over, whole=reports.whole(STAGE, "sockets"))


def measured(reports: Reports) -> dict[str, Any]:
    """Return the part of smoke.json about transports: those used between ranks (for Gloo: between addresses), and those
    that the hardware offers."""
    facts = reports.facts(STAGE)
    pairs: dict[tuple[Any, Any, str], None] = {}
    for said in facts.values():
        for channel in [*channels(reports, said, inside=True), *channels(reports, said, inside=False)]:
            direct_way = " GPUDirect" if channel.get("gdr") is True else ""
            pairs[channel["from"], channel["to"], str(channel.get("via"))[:60] + direct_way] = None
    nodes = {entry.address: entry.node for entry in reports.plan.nodes}
    for rank, said in facts.items():
        for one in listed(said.get("sockets")):
            peer = str(one.get("peer"))[:46]
            way = f"TCP over {str(one.get('interface'))[:16]}"
            pairs[reports.places[rank].node, nodes.get(peer, peer), way] = None
    return {
        "pairs": [{"from": a, "to": b, "kind": kind} for a, b, kind in list(pairs)[:MOST_PAIRS]],
        "offered": {node: dict(offered(facts, ranks)) for node, ranks in by_node(reports).items()},
        "net": next((str(said["net"])[:40] for said in facts.values() if said.get("net")), ""),
        "nccl": next((str(said["nccl"])[:40] for said in facts.values() if said.get("nccl")), ""),
    }
