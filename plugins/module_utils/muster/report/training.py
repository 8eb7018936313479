"""The launch: the ranks of each node, training progress, restarts, and the speed compared to a launch with fewer
processes."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from ..acceptance import comparison
from ..acceptance.reports import number as numeric
from ..verdict.words import few
from . import plots
from .words import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..launch.planned import PlannedNode
    from .artifacts import Artifacts

SLOW = 0.8  # of the ranks' median
UNFOLDED = 16  # nodes; with more, only those that are slow or silent
ENDED = {True: "pass", False: "fail"}


def launch(kept: Artifacts) -> dict[str, Any] | None:
    """Return the planned ranks, with the values that each node reported; None if nothing was launched."""
    plan, smoke = kept.plan, kept.smoke
    if plan is None:
        return None
    ranks = [_reported(rank) for rank in smoke.get("ranks", [])]
    reports: dict[str, list[Mapping[str, Any]]] = {}
    for rank in ranks:
        if rank["said"]:
            reports.setdefault(rank["node"], []).append(rank)
    speeds = [rank["samples_per_second"] for rank in ranks if _is_number(rank.get("samples_per_second"))]
    usual = median(speeds) if speeds else 0.0
    steps = smoke.get("steps", [])
    nodes = [_node(entry, reports.get(entry.node, []), usual, kept.logs) for entry in plan.nodes]
    odd = [node for node in nodes if node["slow"] or node["silent"]]
    return {
        "world_size": plan.world_size,
        "backend": plan.backend,
        "master": f"{plan.master_addr}:{plan.master_port}",
        "speed": number(smoke.get("samples_per_second")),
        "first": number(smoke.get("loss_first")),
        "last": number(smoke.get("loss_last")),
        "measured": bool(reports),
        "count": len(nodes),
        "nodes": nodes if len(nodes) <= UNFOLDED else odd,
        "folded": [] if len(nodes) <= UNFOLDED else [node for node in nodes if node not in odd],
        "curves": [
            drawn
            for drawn in (
                curve("Loss", "loss", steps, "loss"),
                curve("Throughput", "samples/s", steps, "samples_per_second"),
            )
            if drawn
        ],
    }


def _reported(rank: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training values and the node of a rank. said: whether the rank reported anything."""
    stages = rank.get("stages")
    trained = stages.get("train") if isinstance(stages, dict) else None
    facts = trained.get("facts") if isinstance(trained, dict) else None
    node = rank.get("node", rank.get("from_node"))  # from_node: in runs of Muster releases before the acceptance test
    return {**rank, **(facts if isinstance(facts, dict) else {}), "node": str(node), "said": stages != {}}


def _node(
    entry: PlannedNode, ranks: Sequence[Mapping[str, Any]], usual: float, logs: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    speeds = [rank["samples_per_second"] for rank in ranks if _is_number(rank.get("samples_per_second"))]
    losses = [rank["loss_last"] for rank in ranks if _is_number(rank.get("loss_last"))]
    slowest = min(speeds, default=None)
    return {
        "node": entry.node,
        "node_rank": entry.node_rank,
        "ranks": span(entry.ranks),
        "address": entry.address,
        "interface": entry.interface or "",
        "devices": ", ".join(sorted({str(rank.get("device", "")).partition(":")[0] for rank in ranks})),
        "loss": number(losses[0]) if losses else "",
        "speed": number(slowest),
        "slow": slowest is not None and slowest < SLOW * usual,
        "silent": [rank for rank in entry.ranks if rank not in {one.get("rank") for one in ranks}] if ranks else [],
        "logs": list(logs.get(entry.node, [])),
    }


def span(ranks: Sequence[int]) -> str:
    """Format the consecutive ranks of a node, such as 0-7."""
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"


def curve(title: str, unit: str, steps: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any] | None:
    """Plot a value over the steps, on an axis that starts at zero; None if there are fewer than two points."""
    points = [(step["step"], step[key]) for step in steps if _is_number(step.get("step")) and _is_number(step.get(key))]
    if len(points) < 2:
        return None
    (begin, first), (end, last) = points[0], points[-1]
    told = f"from {number(first)} at step {begin} to {number(last)} at step {end}"
    x, y = plots.along("step", begin, end), plots.upward(unit, [value for _, value in points])
    return plots.plot(title, told, x, y, [plots.PlotLine("", "c1", points)])


def _is_number(value: Any) -> bool:
    found = numeric(value)
    return found is not None and math.isfinite(found)


def speed_table(kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the comparison as rows of text, with headings; None if nothing was compared."""
    rows = kept.get("rows", [])
    if not rows:
        return None
    most = max((row["samples_per_second"] or 0.0 for row in rows), default=0.0)
    return {
        "headings": list(comparison.HEADINGS),
        "sentence": comparison.sentence(kept),
        "wrong": bool(kept["wrong"]),
        "rows": [
            {
                "cells": comparison.cells(row),
                "part": round(100 * (row["samples_per_second"] or 0.0) / most, 1) if most else 0,
                "why": row["why"],
            }
            for row in rows
        ],
        "skipped": [f"{entry['name']}: {entry['why']}" for entry in kept["skipped"]],
    }


def restart_table(kept: Mapping[str, Any], verdict: Mapping[str, Any], this: str) -> list[dict[str, Any]] | None:
    """Return one row per attempt, oldest first; None if there are fewer than two. kept: content of attempts.json. this:
    the run's launch ID."""
    found = [one for one in kept.get("attempts", []) if isinstance(one, dict)]
    if len(found) < 2:
        return None
    well = verdict.get("status") in ("healthy", "degraded")
    return [
        {
            "number": one.get("number", ""),
            "id": str(one.get("launch_id", "")),
            "this": one.get("launch_id") == this,
            "nodes": few([str(name) for name in one.get("nodes", [])]),
            "from": str(one.get("checkpoint") or ""),
            "mark": ENDED[well and one is found[-1]],
            "how": str(one.get("summary", "")),
        }
        for one in found
    ]
