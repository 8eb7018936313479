"""Invented acceptance tests in the shape of smoke.json."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

import samples

if TYPE_CHECKING:
    from muster.report import Artifacts

STAGES = {
    "world": 0.3,
    "device": 3.8,
    "collectives": 2.9,
    "bandwidth": 7.4,
    "transport": 0.2,
    "equality": 5.1,
    "sampling": 0.4,
    "checkpoint": 2.2,
    "precision": 1.9,
    "stragglers": 3.0,
    "scaling": 4.1,
    "train": 3.3,
}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
OFFERED = {
    "nvlink": {"0": ["1"]},
    "peermem": True,
    "adapters": [{"name": "mlx5_0:1", "layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)", "active": True}],
}
SLOW, WEAK, DEAD = 5, 3, 6  # ranks with faults


def kept(nodes: int, ranks: int, broken: str = "") -> Artifacts:
    """Return a run. nodes: number of nodes. ranks: GPUs per node. broken: gpu, link, straggler, stage or drop."""
    well = samples.healthy(nodes)
    measured = smoke(nodes, ranks, broken)
    entries = [
        dataclasses.replace(entry, ranks=list(range(place * ranks, place * ranks + ranks)))
        for place, entry in enumerate(samples.plan(nodes).nodes)
    ]
    plan = dataclasses.replace(samples.plan(nodes), world_size=nodes * ranks, nodes=entries)
    past = [{**one, "figures": figures(nodes * ranks, number)} for number, one in enumerate(samples.earlier(nodes))]
    status, summary, found = FOUND[broken]
    run = {**well.run, "status": status, "sentence": summary, "figures": figures(nodes * ranks, 0, broken == "drop")}
    findings = [samples.finding(*one) for one in found] + list(well.verdict["findings"])
    verdict = {**well.verdict, "status": status, "summary": summary, "findings": findings}
    return dataclasses.replace(well, run=run, verdict=verdict, plan=plan, smoke=measured, history=[run, *past])


FOUND: dict[str, tuple[str, str, list[tuple[str, str, str, str]]]] = {
    "": (
        "healthy",
        "8 ranks on 4 nodes trained together (nccl): 181000 samples/s, all-reduce 46.2 GB/s, 31 checks (quick)",
        [],
    ),
    "gpu": (
        "failed",
        "the launch ran, but its result is wrong. node2: GEMM rate of rank 3 is 212 TFLOP/s, below 480",
        [("smoke.gemm", "fail", "node2", "GEMM rate of rank 3 (node2, local rank 1, GPU-0003) is 212 TFLOP/s")],
    ),
    "link": (
        "failed",
        "the launch ran, but its result is wrong. node3: its link is slow",
        [("smoke.bandwidth", "fail", "node3", "all-reduce across the nodes reaches 4.1 GB/s: what comes from node3")],
    ),
    "straggler": (
        "degraded",
        "8 ranks on 4 nodes trained together (nccl); node3: rank 5 (node3, local rank 1) is a straggler",
        [("smoke.straggler", "warn", "node3", "rank 5 (node3, local rank 1) takes 1.6 times as long as the others")],
    ),
    "stage": (
        "failed",
        "the launch ran, but its result is wrong. node4: rank 6 (node4, local rank 0): the stage bandwidth was killed",
        [("smoke.stage", "fail", "node4", "rank 6 (node4, local rank 0): the stage bandwidth did not end within 60 s")],
    ),
    "drop": (
        "degraded",
        "8 ranks on 4 nodes trained together (nccl); node1: throughput of all 8 ranks is 131000 samples/s, 28 % below",
        [("smoke.regression", "warn", "node1", "throughput of all 8 ranks is 131000 samples/s, 28 % below")],
    ),
}


def figures(ranks: int, number: int, drop: bool = False) -> dict[str, Any]:
    chance = random.Random(number)
    scale = (0.72 if drop or number == 5 else 1) * chance.uniform(0.98, 1.02)
    about = {"nodes": ranks // 2, "world_size": ranks, "backend": "nccl"}
    rates = {"samples_per_second": 181_000, "busbw": 46.2, "efficiency": 0.93, "gemm_tflops": 612}
    return {**about, **{name: round(value * scale, 3) for name, value in rates.items()}}


def smoke(nodes: int, ranks: int, broken: str = "") -> dict[str, Any]:
    chance = random.Random(nodes)
    places = [
        {"rank": node * ranks + local, "node": f"node{node + 1}", "node_rank": node, "local_rank": local}
        for node in range(nodes)
        for local in range(ranks)
    ]
    made = samples.smoke(nodes)
    return {
        **{name: made[name] for name in ("loss_first", "loss_last", "steps")},
        "schema": 2,
        "mode": "quick",
        "backend": "nccl",
        "world_size": len(places),
        "samples_per_second": 181_000 * (0.72 if broken == "drop" else 1),
        "ranks": [rank_of(place, broken, chance) for place in places],
        "device": {"ranks": [device(place, broken, chance) for place in places]},
        "collectives": {
            "cases": [
                {"collective": name, "dtype": "int64", "sizes": [1, 1023, 1 << 20], "exact": True}
                for name in COLLECTIVES
            ]
        },
        "bandwidth": bandwidth(nodes, broken),
        "transport": {
            "pairs": pairs(nodes, ranks, broken),
            "offered": dict.fromkeys(samples.names(nodes), OFFERED),
        },
        "stragglers": stragglers(places, broken, chance),
        "scaling": {"alone": 24_300, "together": 24_300 * len(places) * 0.93, "efficiency": 0.93, "bound": 0.97},
        "accepted": beside(broken),
    }


def rank_of(place: dict[str, Any], broken: str, chance: random.Random) -> dict[str, Any]:
    stages = {}
    for name, seconds in STAGES.items():
        report = {"status": "ok", "why": "", "seconds": seconds * chance.uniform(0.9, 1), "facts": {}}
        if name == "precision":
            report = {"status": "skipped", "why": "bfloat16 is not supported here", "seconds": 0.0, "facts": {}}
        if broken == "stage" and name == "bandwidth" and place["rank"] == DEAD:
            why = "did not end within 60 s, and was killed in all_gather of 4096 elements"
            report = {**report, "status": "timeout", "why": why, "seconds": 60.0}
        stages[name] = report
    if broken == "stage" and place["rank"] == DEAD:
        stages = {name: stages[name] for name in list(STAGES)[:4]}
    rate = {"samples_per_second": 22_600 * chance.uniform(0.99, 1), "loss_last": 0.0337}
    if "train" in stages:
        stages["train"]["facts"] = rate
    gpu = f"GPU-{place['rank']:04}"
    return {**place, "hostname": place["node"], "device": "NVIDIA H100 80GB HBM3", "gpu_uuid": gpu, "stages": stages}


def device(place: dict[str, Any], broken: str, chance: random.Random) -> dict[str, Any]:
    weak = 0.35 if broken == "gpu" and place["rank"] == WEAK else 1
    return {
        **place,
        "gpu_uuid": f"GPU-{place['rank']:04}",
        "model": "H100 SXM5 80 GB",
        "gemm_tflops": 618 * weak * chance.uniform(0.97, 1),
        "gemm_floor": 480,
        "memory_gbps": 2890 * chance.uniform(0.99, 1),
        "memory_floor": 2600,
        "h2d_gbps": 53 * chance.uniform(0.97, 1),
        "h2d_floor": 44,
        "basis": "80 % of NVIDIA's data sheet",
    }


def bandwidth(nodes: int, broken: str) -> dict[str, Any]:
    curves = []
    for name in COLLECTIVES:
        for level, node, most in (
            *(("node", f"node{number + 1}", 310.0 - number) for number in range(nodes)),
            ("all", None, 46.8),
            ("across", None, 46.2),
        ):
            top = most * (0.09 if broken == "link" and level != "node" else 1)
            curves.append({"collective": name, "level": level, "node": node, "ranks": 8, "points": points(top)})
    slow = {"slow_level": "across", "pairs": lone_pairs(nodes)} if broken == "link" else {"slow_level": "", "pairs": []}
    return {"curves": curves, **slow}


def points(top: float) -> list[dict[str, float]]:
    drawn = []
    for power in range(3, 31, 2):
        busbw = top * 2**power / (2**power + 2**21)
        drawn.append({"bytes": 2**power, "seconds": 2**power / busbw / 1e9, "algbw": busbw / 1.75, "busbw": busbw})
    return drawn


def lone_pairs(nodes: int) -> list[dict[str, Any]]:
    return [
        {"a": f"node{one + 1}", "b": f"node{other + 1}", "gbps": 4.1 if 2 in (one, other) else 45.0 + other}
        for one in range(nodes)
        for other in range(one + 1, nodes)
    ]


def pairs(nodes: int, ranks: int, broken: str) -> list[dict[str, Any]]:
    """Connect each rank to the ranks of its node, and to the same local rank on the next node."""
    found = []
    for rank in range(nodes * ranks):
        node, local = divmod(rank, ranks)
        found += [
            {"from": rank, "to": node * ranks + other, "kind": "P2P/CUMEM"} for other in range(ranks) if other != local
        ]
        across = ((node + 1) % nodes) * ranks + local
        slow = broken == "link" and 2 in (node, (node + 1) % nodes)
        found += (
            [{"from": rank, "to": across, "kind": "NET/Socket/0" if slow else "NET/IB/0 GPUDirect"}]
            if nodes > 1
            else []
        )
    return found


def stragglers(places: list[dict[str, Any]], broken: str, chance: random.Random) -> dict[str, Any]:
    ranks = []
    for place in places:
        slow = broken == "straggler" and place["rank"] == SLOW
        time = 12.4 * chance.uniform(0.99, 1.02) * (1.6 if slow else 1)
        ranks.append({**place, "ms": time, "ratio": time / 12.4, "slow": slow})
    return {"median_ms": 12.4, "ranks": ranks}


def beside(broken: str) -> dict[str, Any]:
    lost = 0.28 if broken == "drop" else 0.01
    values = [
        ("throughput", "all 8 ranks", "samples/s", 181_000.0, lost, broken == "drop"),
        ("busbw", "all_reduce across the nodes", "GB/s", 46.2, -0.004, False),
        *(("GEMM rate", f"rank {rank} (GPU-{rank:04})", "TFLOP/s", 612.0, 0.002 * rank, False) for rank in range(16)),
    ]
    names = ("title", "where", "unit", "before", "lost", "drop")
    rows: list[dict[str, Any]] = [dict(zip(names, one, strict=True)) for one in values]
    shown = [{**row, "now": row["before"] * (1 - row["lost"])} for row in rows]
    return {"run": "20261101-101010-aaaa", "date": "2026-11-01T10:10:10+00:00", "values": shown}


def soaked(nodes: int, ranks: int) -> Artifacts:
    """Return a six-hour soak in which one GPU overheats and is throttled."""
    chance = random.Random(6)
    series = []
    for rank in range(nodes * ranks):
        for minute in range(0, 361, 6):
            hot = rank == WEAK and minute > 200
            warm = 58 + 9 * min(minute, 40) / 40 + (18 * min(minute - 200, 60) / 60 if hot else 0)
            rate = 22_600 * (0.8 if hot and minute > 240 else 1)
            reasons = ["hw_thermal_slowdown"] if hot and minute > 240 else []
            about = {"seconds": 60.0 * minute, "rank": rank, "node": f"node{1 + rank // ranks}"}
            measured = {
                "samples_per_second": rate + chance.uniform(-90, 90),
                "temperature_c": warm + chance.uniform(-1, 1),
            }
            series.append({**about, **measured, "throttled": reasons, "ecc": {"corrected": 2 * hot, "uncorrected": 0}})
    well = kept(nodes, ranks)
    told = {"series": series, "rounds": 412, "ended": "time"}
    return dataclasses.replace(well, smoke={**well.smoke, "mode": "soak", "soak": told})
