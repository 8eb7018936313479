"""Evaluate the bandwidth between the ranks, to find the level, node or link that is slow."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from ..net_probe.blame import blame, couples
from ..verdict.check import Check
from ..verdict.commands import shell
from ..verdict.words import few, plural
from .collectives import listed
from .device import short
from .link_floors import FABRIC, LinkFloor, link_floor
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .reports import Reports

# Pairs of nodes. Gloo is limited by the CPUs, which other processes may use too: one healthy pair measured between
# 0.35 and 1.1 GB/s on two busy cores. With NCCL, a pair reaches the rate of its link.
SLOW_PAIR = {"gloo": 1 / 3, "nccl": 1 / 2}
# One GPU per node, over at least one adapter. oci-hpc (multi_node_active_healthcheck.py) requires more of rings: 185
# GB/s for two nodes with sixteen adapters of 100 Gbit/s each (200 GB/s). This threshold is lower because a measurement
# of one minute has few rounds.
SLOW_RDMA = 0.5
# All-reduce busbw in GB/s that published acceptance tests require of eight GPUs in a node: oci-hpc 440 for H100 and 800
# for B300 (https://github.com/oracle-quickstart/oci-hpc, b5285a68, active_healthcheck.py); azurehpc-health-checks 460
# for H100 (https://github.com/Azure/azurehpc-health-checks, 0e0a1ac2, conf/nd96isr_h100_v5.conf). Those send 1 to 16
# GB; this test sends at least 256 MiB and warns only far below.
INSIDE = {"H100 80GB HBM3": 440.0, "B300": 800.0}
SLOW_INSIDE = 0.5
INSIDE_RANKS = 8
INSIDE_BYTES = 256 << 20

BANDWIDTH = Check(
    "smoke.bandwidth",
    seen="sandbox",
    reads="all-reduce busbw (as defined by nccl-tests) over all ranks, inside each node, and across nodes with one "
    "rank per node; the measured rates of the RDMA adapters (rails.json)",
    fires="fail: busbw is below ddp_smoke_busbw_floor, if that option is set. warn: busbw over RDMA is less than "
    f"{SLOW_RDMA:.0%} of the median adapter rate in rails.json, or less than other sites reach with the same GPUs "
    "(links in gpu_rates.yml). Gloo is not compared",
    fix="Check the slow links that the finding names (inside a node or between nodes), and the findings of "
    "smoke.pairs and smoke.sockets",
)
PAIRS = Check(
    "smoke.pairs",
    seen="sandbox",
    reads="the rate of simultaneous transfers in both directions between each pair of nodes: the best of three "
    "exchanges of 1 MiB (64 MiB between GPUs)",
    fires="warn: in a launch on three or more nodes, a pair reaches less than half (Gloo: a third) of the median of "
    "the nodes' best pairs. The finding names a node if most of its pairs are slow, otherwise the link",
    fix="Check the node's cable, the switch port, and other traffic on the link",
)
NVLINK = Check(
    "smoke.inside",
    seen="stand-in",
    reads="all-reduce busbw between the GPUs of a node",
    fires=f"warn: with messages of 256 MiB or more, the eight GPUs of a node reach less than {SLOW_INSIDE:.0%} of the "
    "busbw that the oci-hpc health checks require for their model (H100: 440 GB/s, B300: 800 GB/s). Other models are "
    "not evaluated",
    fix="Check the node's NVLinks and the fabric manager",
    command="nvidia-smi nvlink --status",
)
CHECKS = (BANDWIDTH, PAIRS, NVLINK)

STAGE = "bandwidth"


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    if is_skipped(reports):
        yield BANDWIDTH.skip("the launch has only one rank")
        return
    yield from whole(reports)
    yield from pairs(reports)
    yield from inside(reports)


def is_skipped(reports: Reports) -> bool:
    by_rank = reports.stages.get(STAGE, {})
    return bool(by_rank) and all(report.status == "skipped" for report in by_rank.values())


def curves(reports: Reports) -> list[dict[str, Any]]:
    """Return the bandwidth curves of all ranks as in smoke.json. node: name of the node, or "" for curves across
    several nodes."""
    found = []
    for rank, said in reports.facts(STAGE).items():
        for curve in listed(said.get("curves")):
            points = [values for point in listed(curve.get("points")) if (values := point_of(point)) is not None]
            if points and curve.get("level") in ("all", "node", "across"):
                node = reports.places[rank].node if curve["level"] == "node" else ""
                words = {"collective": str(curve.get("collective"))[:24], "level": curve["level"], "node": node}
                found.append({**words, "ranks": curve.get("ranks"), "points": points})
    return found


def point_of(point: Mapping[str, Any]) -> dict[str, float] | None:
    values = {name: number(point.get(name)) for name in ("bytes", "seconds", "algbw", "busbw")}
    found = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    return found if len(found) == len(values) else None


def best(reports: Reports, level: str, node: str = "") -> float | None:
    """Return the highest all-reduce busbw at a level, in GB/s."""
    rates = [
        point["busbw"]
        for curve in curves(reports)
        if (curve["collective"], curve["level"]) == ("all_reduce", level) and node in ("", curve["node"])
        for point in curve["points"]
    ]
    return max(rates) if rates else None


def slow_level(reports: Reports) -> str:
    """Return which level is slower, "node" or "across"; "" unless both levels were measured."""
    rates = {level: rate for level in ("node", "across") if (rate := best(reports, level)) is not None}
    return min(rates, key=lambda level: rates[level]) if len(rates) == 2 else ""


def whole(reports: Reports) -> Iterator[Said]:
    everybody, across, node = (best(reports, level) for level in ("all", "across", "node"))
    if everybody is None:
        yield BANDWIDTH.unknown(reports.head, "no rank reported the all-reduce busbw over all ranks", fix="")
        return
    several = len(reports.plan.nodes) > 1
    rate = across if across is not None else everybody
    where = "across nodes" if several else "inside the node"
    text = f"all-reduce busbw {gbps(everybody)} over all {plural(len(reports.places), 'rank')}"
    if across is not None and node is not None:
        text += f", {gbps(node)} inside a node, {gbps(across)} across nodes"
    floor = reports.bounds.busbw_floor
    rail = median(reports.bounds.rails) / 8 if reports.bounds.rails else 0.0
    if floor > 0 and rate < floor:
        yield BANDWIDTH.fail(
            reports.head,
            f"all-reduce busbw {where} is {gbps(rate)}, below the {floor:g} GB/s of ddp_smoke_busbw_floor ({text})",
            observed=gbps(rate),
            expected=f"{floor:g} GB/s",
        )
    elif several and rail > 0 and over_rdma(reports) and rate < SLOW_RDMA * rail:
        known = others.known_causes(rate) if (others := of_others(reports)) else ""
        yield BANDWIDTH.warn(
            reports.head,
            f"all-reduce busbw across nodes is {gbps(rate)}, but one RDMA adapter of this cluster reaches "
            f"{gbps(rail)} ({text})",
            known or "Check whether GPUDirect is in use (smoke.gpudirect), and the PCIe distance of GPUs and adapters",
            "" if known else "nvidia-smi topo -m",
            observed=gbps(rate),
            expected=gbps(SLOW_RDMA * rail),
        )
    elif several and (others := of_others(reports)) and (large := largest(reports)) and large < others.gbps:
        text = f"all-reduce busbw over all ranks is {gbps(large)}, below what other sites reach with the same GPUs"
        yield BANDWIDTH.warn(
            reports.head, text, others.known_causes(large) or BANDWIDTH.fix, observed=gbps(large), expected=others.basis
        )
    else:
        yield BANDWIDTH.passed(reports.head, text)


def of_others(reports: Reports) -> LinkFloor | None:
    """Return what other sites reach over RDMA with these GPUs; None if unknown, or if the nodes differ."""
    models = {str(said.get("device")) for said in reports.facts("world").values()}
    ranks = {len(entry.ranks) for entry in reports.plan.nodes}
    if len(models) != 1 or len(ranks) != 1 or not over_rdma(reports):
        return None
    return link_floor(reports.bounds.gpu_rates, FABRIC, short(models.pop()), ranks.pop())


def largest(reports: Reports, node: str = "") -> float | None:
    """Return the best all-reduce busbw with large messages, inside a node or over all ranks; None if none was sent."""
    rates = [
        point["busbw"]
        for curve in curves(reports)
        if curve["collective"] == "all_reduce" and (curve["node"] == node if node else curve["level"] == "all")
        for point in curve["points"]
        if point["bytes"] >= INSIDE_BYTES
    ]
    return max(rates, default=None)


def over_rdma(reports: Reports) -> bool:
    """Return whether NCCL reported that it uses a network other than sockets."""
    nets = {str(said.get("net") or "") for said in reports.facts("transport").values()}
    return bool(nets) and not nets & {"", "Socket", "gloo/tcp"}


def gbps(rate: float) -> str:
    return f"{rate:.3g} GB/s"


def tried_pairs(reports: Reports) -> dict[tuple[str, str], float]:
    """Return {(node, node): GB/s in each direction} of the pairs that were measured."""
    names = {entry.node_rank: entry.node for entry in reports.plan.nodes}
    found = {}
    for said in reports.facts(STAGE).values():
        for pair in listed(said.get("pairs")):
            a, b, rate = pair.get("a"), pair.get("b"), number(pair.get("gbps"))
            if isinstance(a, int) and isinstance(b, int) and {a, b} <= names.keys() and rate is not None and rate >= 0:
                found[names[a], names[b]] = rate
    return found


def pairs(reports: Reports) -> Iterator[Said]:
    """Yield findings for the nodes or links that are slower than the others."""
    rates = tried_pairs(reports)
    count = len(reports.plan.nodes)
    if count < 3:
        why = "there is only one node" if count == 1 else "a launch on two nodes has no other link to compare with"
        yield PAIRS.skip(why)
        return
    if not rates:
        yield PAIRS.unknown(reports.head, "no rank reported transfer rates between nodes", fix="")
        return
    usual = usual_of(rates)
    least = usual * slow_pair(reports)
    bad = [pair for pair, rate in rates.items() if rate < least]
    nodes = reports.plan.names
    both = {way for pair in rates for way in (pair, pair[::-1])}
    wrong = [way for pair in bad for way in (pair, pair[::-1])]
    for share in couples(nodes, blame(nodes, wrong, list(both))):
        slow = [rates.get(link, rates.get(link[::-1], 0.0)) for link in share.links]
        others = f"the other links {gbps(usual)}"
        level = "the node's network is slow"
        own = best(reports, "node", share.node)
        if own is not None and share.way != "pair":
            level += f" (all-reduce busbw inside the node: {gbps(own)})" if own > max(slow) else ""
        if share.way == "pair":
            text = f"the link to {share.peers[0]} carries {gbps(slow[0])}, {others}: only this link is slow"
        else:
            text = f"the links to {few(share.peers)} carry at most {gbps(max(slow))}, {others}: {level}"
        yield PAIRS.warn(
            share.node,
            text,
            "Check the cable, the switch port, and other traffic on the link",
            shell("ip -s link show {interface}", interface=interface)
            if (interface := interface_of(reports, share.node))
            else "ip -s link",
            peer=share.peer,
            observed=gbps(max(slow)),
            expected=gbps(least),
        )
    if not bad:
        span = f"{gbps(min(rates.values()))} to {gbps(max(rates.values()))}"
        yield PAIRS.passed(reports.head, f"{plural(len(rates), 'pair')} of nodes: {span} in each direction")


def interface_of(reports: Reports, node: str) -> str:
    return next((entry.interface or "" for entry in reports.plan.nodes if entry.node == node), "")


def slow_pair(reports: Reports) -> float:
    return SLOW_PAIR["nccl" if reports.plan.backend == "nccl" else "gloo"]


def usual_of(rates: Mapping[tuple[str, str], float]) -> float:
    """Return the median of the nodes' best rates. A median of all pairs would not work: one slow node of three slows
    two pairs."""
    found: dict[str, float] = {}
    for pair, rate in rates.items():
        for end in pair:
            found[end] = max(found.get(end, 0.0), rate)
    return median(found.values())


def inside(reports: Reports) -> Iterator[Said]:
    """Evaluate the busbw between the GPUs of a node, for GPU models with a published value."""
    for entry in reports.plan.nodes:
        node = entry.node
        said = reports.facts("world").get(entry.ranks[0], {}) if entry.ranks else {}
        known = next((rate for name, rate in INSIDE.items() if name in str(said.get("device"))), None)
        rate = largest(reports, node) or (largest(reports) if len(reports.plan.nodes) == 1 else None)
        if known is None or len(entry.ranks) != INSIDE_RANKS or rate is None:
            continue
        text = f"all-reduce busbw between the {INSIDE_RANKS} GPUs is {gbps(rate)}"
        if rate < SLOW_INSIDE * known:
            text += f"; published acceptance tests require {known:g} GB/s for this model"
            yield NVLINK.warn(node, text, observed=gbps(rate), expected=gbps(SLOW_INSIDE * known))
        else:
            yield NVLINK.passed(node, text)


def measured(reports: Reports) -> dict[str, Any]:
    """Return the part of smoke.json about bandwidth."""
    rates = tried_pairs(reports)
    listed_pairs = [{"a": a, "b": b, "gbps": rate} for (a, b), rate in rates.items()]
    latency = [
        point["seconds"] * 1e6
        for curve in curves(reports)
        if (curve["collective"], curve["level"]) == ("all_reduce", "all")
        for point in curve["points"][:1]
    ]
    return {
        "curves": curves(reports),
        "slow_level": slow_level(reports),
        "pairs": listed_pairs,
        "usual_pair": usual_of(rates) if rates else None,
        "slow_pair": slow_pair(reports),
        "busbw": best(reports, "all"),
        "latency_us": round(latency[0], 1) if latency else None,
    }
