"""How fast the ranks talk; when they are slow, at which level, and which node or link it is."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from ..net_probe.blame import blame, couples
from ..verdict.check import Check
from ..verdict.commands import shell
from ..verdict.words import few, plural
from .collectives import listed
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .reports import Reports

# Of pairs of nodes with each other. Gloo is bound by processors, which others may need too: figures of one healthy
# pair lay between 0.35 and 1.1 GB/s on two busy cores. With NCCL, pairs do what their link does.
SLOW_PAIR = {"gloo": 1 / 3, "nccl": 1 / 2}
# One GPU of each node, over one adapter at least. oci-hpc (multi_node_active_healthcheck.py) demands more of rings: 185
# GB/s of two nodes with sixteen adapters of 100 Gbit/s each (200 GB/s). Ours warns later, since what is measured in a
# minute has few rounds.
SLOW_RDMA = 0.5
# All-reduce busbw in GB/s that acceptance tests of others demand of eight GPUs in a node: oci-hpc 440 of H100 and 800
# of B300 (https://github.com/oracle-quickstart/oci-hpc, b5285a68, active_healthcheck.py); azurehpc-health-checks 460 of
# H100 (https://github.com/Azure/azurehpc-health-checks, 0e0a1ac2, conf/nd96isr_h100_v5.conf). Those send 1 to 16 GB; we
# send 256 MiB at least, and say something only far below.
INSIDE = {"H100 80GB HBM3": 440.0, "B300": 800.0}
SLOW_INSIDE = 0.5
INSIDE_RANKS = 8
INSIDE_BYTES = 256 << 20

BANDWIDTH = Check(
    "smoke.bandwidth",
    seen="sandbox",
    reads="busbw of all-reduce (the definitions of nccl-tests) over all ranks, inside each node, and across nodes with "
    "one rank of each; the rates that the trial of the RDMA adapters measured",
    fires="fail: below ddp_smoke_busbw_floor, where that is set. "
    f"warn: over RDMA, less than {SLOW_RDMA:.0%} of what the median adapter got in the trial of the rails "
    "(rails.json). Gloo is never held against an adapter's rate",
    fix="Look at the slow level, which the finding names, and at smoke.pairs and smoke.sockets",
)
PAIRS = Check(
    "smoke.pairs",
    seen="sandbox",
    reads="what each pair of nodes sends to each other at once, 1 MiB (64 MiB from GPUs), the best of three",
    fires="warn: with three nodes and more, less than half (Gloo: a third) of the median node's best pair. A node is "
    "named where most of its pairs are slow, else the link",
    fix="Look at the node's cable, its port on the switch, and what else uses the link",
)
NVLINK = Check(
    "smoke.inside",
    seen="stand-in",
    reads="busbw of all-reduce between the GPUs of a node",
    fires=f"warn: eight GPUs of a model whose figure others publish get less than {SLOW_INSIDE:.0%} of it from 256 MiB "
    "on (H100: 440 GB/s, B300: 800, oci-hpc's healthchecks); other models are not judged",
    fix="Look at the node's NVLinks and at the fabric manager",
    command="nvidia-smi nvlink --status",
)
CHECKS = (BANDWIDTH, PAIRS, NVLINK)

STAGE = "bandwidth"


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    if is_skipped(reports):
        yield BANDWIDTH.skip("there is one rank alone, which talks to nobody")
        return
    yield from whole(reports)
    yield from pairs(reports)
    yield from inside(reports)


def is_skipped(reports: Reports) -> bool:
    by_rank = reports.stages.get(STAGE, {})
    return bool(by_rank) and all(report.status == "skipped" for report in by_rank.values())


def curves(reports: Reports) -> list[dict[str, Any]]:
    """Those of all ranks, as they are in smoke.json; node: its name, "" where there are several."""
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
    """The most busbw of all-reduce at a level, in GB/s."""
    rates = [
        point["busbw"]
        for curve in curves(reports)
        if (curve["collective"], curve["level"]) == ("all_reduce", level) and node in ("", curve["node"])
        for point in curve["points"]
    ]
    return max(rates) if rates else None


def slow_level(reports: Reports) -> str:
    """node or across, whichever is slower; "" where there are not both."""
    rates = {level: rate for level in ("node", "across") if (rate := best(reports, level)) is not None}
    return min(rates, key=lambda level: rates[level]) if len(rates) == 2 else ""


def whole(reports: Reports) -> Iterator[Said]:
    everybody, across, node = (best(reports, level) for level in ("all", "across", "node"))
    if everybody is None:
        yield BANDWIDTH.unknown(reports.head, "no rank reported the busbw of all ranks together", fix="")
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
        yield BANDWIDTH.warn(
            reports.head,
            f"all-reduce busbw across nodes is {gbps(rate)}, where one RDMA adapter of this cluster carries "
            f"{gbps(rail)} ({text})",
            "Look whether GPUDirect is in use (smoke.gpudirect), and how far the GPUs are from their adapters:",
            "nvidia-smi topo -m",
            observed=gbps(rate),
            expected=gbps(SLOW_RDMA * rail),
        )
    else:
        yield BANDWIDTH.passed(reports.head, text)


def over_rdma(reports: Reports) -> bool:
    """Whether NCCL itself says that its network is neither sockets nor unknown."""
    nets = {str(said.get("net") or "") for said in reports.facts("transport").values()}
    return bool(nets) and not nets & {"", "Socket", "gloo/tcp"}


def gbps(rate: float) -> str:
    return f"{rate:.3g} GB/s"


def tried_pairs(reports: Reports) -> dict[tuple[str, str], float]:
    """{(node, node): GB/s of each way}."""
    names = {entry.node_rank: entry.node for entry in reports.plan.nodes}
    found = {}
    for said in reports.facts(STAGE).values():
        for pair in listed(said.get("pairs")):
            a, b, rate = pair.get("a"), pair.get("b"), number(pair.get("gbps"))
            if isinstance(a, int) and isinstance(b, int) and {a, b} <= names.keys() and rate is not None and rate >= 0:
                found[names[a], names[b]] = rate
    return found


def pairs(reports: Reports) -> Iterator[Said]:
    """The nodes or links that are slow beside the others."""
    rates = tried_pairs(reports)
    count = len(reports.plan.nodes)
    if count < 3:
        why = (
            "one node has no link to another"
            if count == 1
            else "two nodes have one link, and nothing to compare it with"
        )
        yield PAIRS.skip(why)
        return
    if not rates:
        yield PAIRS.unknown(reports.head, "no rank reported what the pairs of nodes carry", fix="")
        return
    usual = usual_of(rates)
    least = usual * slow_pair(reports)
    bad = [pair for pair, rate in rates.items() if rate < least]
    nodes = reports.plan.names
    both = {way for pair in rates for way in (pair, pair[::-1])}
    wrong = [way for pair in bad for way in (pair, pair[::-1])]
    for share in couples(nodes, blame(nodes, wrong, list(both))):
        slow = [rates.get(link, rates.get(link[::-1], 0.0)) for link in share.links]
        others = f"others of this cluster carry {gbps(usual)}"
        level = "it is slow across nodes"
        own = best(reports, "node", share.node)
        if own is not None and share.way != "pair":
            level += f", not inside the node (all-reduce busbw {gbps(own)} there)" if own > max(slow) else ""
        if share.way == "pair":
            text = f"its link with {share.peers[0]} carries {gbps(slow[0])}, where {others}: it is this link alone"
        else:
            text = f"its links with {few(share.peers)} carry at most {gbps(max(slow))}, where {others}: {level}"
        yield PAIRS.warn(
            share.node,
            text,
            "Look at its cable, its port on the switch, and what else uses the link",
            shell("ip -s link show {interface}", interface=interface)
            if (interface := interface_of(reports, share.node))
            else "ip -s link",
            peer=share.peer,
            observed=gbps(max(slow)),
            expected=gbps(least),
        )
    if not bad:
        span = f"{gbps(min(rates.values()))} to {gbps(max(rates.values()))}"
        yield PAIRS.passed(reports.head, f"{plural(len(rates), 'pair')} of nodes: {span} each way")


def interface_of(reports: Reports, node: str) -> str:
    return next((entry.interface or "" for entry in reports.plan.nodes if entry.node == node), "")


def slow_pair(reports: Reports) -> float:
    return SLOW_PAIR["nccl" if reports.plan.backend == "nccl" else "gloo"]


def usual_of(rates: Mapping[tuple[str, str], float]) -> float:
    """The median node's best pair: one slow node of three spoils two pairs of three."""
    found: dict[str, float] = {}
    for pair, rate in rates.items():
        for end in pair:
            found[end] = max(found.get(end, 0.0), rate)
    return median(found.values())


def inside(reports: Reports) -> Iterator[Said]:
    """GPUs of a node, where the model's figure is known."""
    for entry in reports.plan.nodes:
        node = entry.node
        said = reports.facts("world").get(entry.ranks[0], {}) if entry.ranks else {}
        known = next((rate for name, rate in INSIDE.items() if name in str(said.get("device"))), None)
        alone = len(reports.plan.nodes) == 1
        rates = [
            point["busbw"]
            for curve in curves(reports)
            if curve["collective"] == "all_reduce" and (curve["node"] == node or (alone and curve["level"] == "all"))
            for point in curve["points"]
            if point["bytes"] >= INSIDE_BYTES
        ]
        if known is None or len(entry.ranks) != INSIDE_RANKS or not rates:
            continue
        text = f"all-reduce busbw between its {INSIDE_RANKS} GPUs is {gbps(max(rates))}"
        if max(rates) < SLOW_INSIDE * known:
            text += f", where others demand {known:g} GB/s of this model"
            yield NVLINK.warn(node, text, observed=gbps(max(rates)), expected=gbps(SLOW_INSIDE * known))
        else:
            yield NVLINK.passed(node, text)


def measured(reports: Reports) -> dict[str, Any]:
    """For smoke.json."""
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
