"""The measurements of the acceptance test and of shared folders, formatted for the report."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from ..acceptance.metrics import positive, rows, word
from ..acceptance.reports import number as numeric
from ..verdict.printable import printable
from ..verdict.words import few, plural
from . import plots
from .words import duration, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Curve = dict[str, Any]
LEVELS = (("across", "between nodes", "c2"), ("all", "all ranks", "c1"), ("node", "within a node", "c3"))
MEASURES = (
    ("gemm_tflops", "gemm_floor", "Matrix multiplication", "TFLOP/s"),
    ("memory_gbps", "memory_floor", "Memory bandwidth", "GB/s"),
    ("h2d_gbps", "h2d_floor", "Host to device", "GB/s"),
)
UNFOLDED = 2  # curves of collectives
LINES = 8  # ranks of a soak with separate lines; with more, only the worst and the median
THROTTLES = 60  # throttling marks in a plot
BASIS = 400  # characters of a floor's source: a data sheet's address, and where it is quoted
MOST_UNFOLDED = 16  # nodes; with more, the slowest of each measure
SLOWEST = 2


# ---------------------------------------------------------------- collectives


def collectives(smoke: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a row for each collective, with its bandwidth curve if one was measured."""
    bandwidth = smoke.get("bandwidth")
    curves = [curve for one in rows(bandwidth, "curves") if (curve := _curve(one))]
    cases = rows(smoke.get("collectives"), "cases")
    names = list(dict.fromkeys([*(word(one.get("collective")) for one in cases), *(c["name"] for c in curves)]))
    if not names:
        return None
    its = {name: [curve for curve in curves if curve["name"] == name] for name in names}
    slow = word(bandwidth.get("slow_level")) if isinstance(bandwidth, dict) else ""
    tried = {name: [one for one in cases if word(one.get("collective")) == name] for name in names}
    levels = [level for level in LEVELS if any(curve["level"] == level[0] for curve in curves)]
    drawn = [_plot(name, its[name]) for name in names if its[name]]
    return {
        "rows": [_row(name, tried[name], its[name], levels) for name in names],
        "plots": drawn[:UNFOLDED],
        "more": drawn[UNFOLDED:],
        "levels": [told for _, told, _ in levels],
        "slow": next((told for level, told, _ in LEVELS if level == slow), ""),
    }


def _curve(one: Mapping[str, Any]) -> Curve | None:
    points = []
    for point in rows(one, "points"):
        count, busbw, algbw = (positive(point.get(key)) for key in ("bytes", "busbw", "algbw"))
        if count and busbw:
            points.append((count, busbw, algbw, positive(point.get("seconds"))))
    if not points or word(one.get("level")) not in {level for level, _, _ in LEVELS}:
        return None
    return {
        "name": word(one.get("collective")),
        "level": word(one.get("level")),
        "node": word(one.get("node")),
        "points": sorted(points, key=lambda point: point[0]),
    }


def _row(
    name: str, cases: Sequence[Mapping[str, Any]], curves: Sequence[Curve], levels: Sequence[tuple[str, str, str]]
) -> dict[str, Any]:
    exact = [one.get("exact") for one in cases]
    bad = any(one is False for one in exact)
    sizes = [size for one in cases for size in _numbers(one.get("sizes"))]
    types = dict.fromkeys(word(one.get("dtype")) for one in cases)
    measured = []
    for level, _, _ in levels:
        worst = _slowest(curves, level)
        last = worst["points"][-1] if worst else None
        seconds = worst["points"][0][3] if worst else None
        measured.append(
            {
                "busbw": number(last[1]) if last else "",
                "latency": number(seconds * 1e6) if seconds else "",
                "of": worst["node"] if worst and level == "node" else "",
            }
        )
    return {
        "name": name,
        "exact": "" if not cases else "no" if bad else "yes" if all(one is True for one in exact) else "unknown",
        "bad": bad,
        "types": ", ".join(types),
        "sizes": _span(sizes),
        "levels": measured,
    }


def _span(sizes: Sequence[float]) -> str:
    if not sizes:
        return ""
    low, high = min(sizes), max(sizes)
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def _plot(name: str, curves: Sequence[Curve]) -> dict[str, Any]:
    """Plot busbw and (dashed) algbw of every level. For the level within nodes, the slowest node is plotted."""
    lines: list[plots.PlotLine] = []
    for level, told, css in LEVELS:
        worst = _slowest(curves, level)
        if worst is None:
            continue
        nodes = sum(curve["level"] == level for curve in curves)
        of = f"within {worst['node']}" + (f", the slowest of {nodes}" if nodes > 1 else "") if level == "node" else told
        lines.append(plots.PlotLine(of, css, [(point[0], point[1]) for point in worst["points"]]))
        algbw = [(point[0], point[2]) for point in worst["points"] if point[2]]
        if algbw:
            lines.append(plots.PlotLine("", css, algbw, dashed=True))
    across = [point[0] for line in lines for point in line.points]
    up = [point[1] for line in lines for point in line.points]
    x = plots.sizes("message size", min(across), max(across))
    return plots.plot(name, "", x, plots.upward("GB/s", up), lines)


def _slowest(curves: Sequence[Curve], level: str) -> Curve | None:
    its = [curve for curve in curves if curve["level"] == level]
    return min(its, key=lambda curve: curve["points"][-1][1], default=None)


# ---------------------------------------------------------------- each rank


def devices(smoke: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return one bar plot per kind of rate, with the floor of each rank."""
    ranks = rows(smoke.get("device"), "ranks")
    drawn = []
    for key, floor, title, unit in MEASURES:
        bars = [
            plots.Bar(_who(rank), word(rank.get("node")), value, least, bad=least is not None and value < least)
            for rank in ranks
            if (value := positive(rank.get(key))) is not None
            for least in (positive(rank.get(floor)),)
        ]
        if bars:
            drawn.append(plots.bars(title, _below(bars), unit, bars))
    models = dict.fromkeys(word(rank.get("model")) for rank in ranks if word(rank.get("model")))
    bases = dict.fromkeys(printable(str(rank["basis"]))[:BASIS] for rank in ranks if rank.get("basis"))
    held = any(plot["floors"] for plot in drawn)
    return {"plots": drawn, "models": few(list(models)), "basis": "; ".join(bases), "held": held} if drawn else None


def stragglers(smoke: Mapping[str, Any]) -> dict[str, Any] | None:
    told = smoke.get("stragglers")
    bars = [
        plots.Bar(_who(rank), word(rank.get("node")), value, bad=rank.get("slow") is True)
        for rank in rows(told, "ranks")
        if (value := positive(rank.get("ms"))) is not None
    ]
    if not bars:
        return None
    middle = positive(told.get("median_ms")) if isinstance(told, dict) else None
    slow = [bar.name for bar in bars if bar.bad]
    text = f"median {number(middle)} ms" if middle else ""
    return {
        "plot": plots.bars("Compute time per step", text, "ms", bars, middle),
        "slow": few(slow) if slow else "",
    }


def scaling(smoke: Mapping[str, Any]) -> dict[str, Any] | None:
    told = smoke.get("scaling")
    if not isinstance(told, dict):
        return None
    alone, together, efficiency = (positive(told.get(key)) for key in ("alone", "together", "efficiency"))
    if alone is None or together is None or efficiency is None:
        return None
    bound = positive(told.get("bound"))
    return {
        "alone": number(alone),
        "together": number(together),
        "percent": f"{100 * efficiency:.0f}",
        "part": round(min(100.0, 100 * efficiency), 1),
        "times": number(together / alone),
        "bound": f"{100 * bound:.0f}" if bound else "",
    }


def _who(rank: Mapping[str, Any]) -> str:
    gpu = word(rank.get("gpu_uuid"))
    place = f"{word(rank.get('node'))}, local rank {word(rank.get('local_rank'))}"
    return f"rank {word(rank.get('rank'))} ({place}{f', {gpu}' if gpu else ''})"


def _below(bars: Sequence[plots.Bar]) -> str:
    bad = [bar for bar in bars if bar.bad]
    low, high = min(bar.value for bar in bars), max(bar.value for bar in bars)
    text = f"{number(low)} to {number(high)}" if number(low) != number(high) else number(low)
    if bad:
        return f"{text}; below the floor: {few([bar.name for bar in bad])}"
    return f"{text}; all above the floor" if any(bar.floor for bar in bars) else text


# ---------------------------------------------------------------- over time


def soak(smoke: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the plots of throughput and temperature over time, with throttling and memory errors."""
    told = smoke.get("soak")
    series: dict[str, list[Mapping[str, Any]]] = {}
    for one in rows(told, "series"):
        if _finite(one.get("seconds")) is not None:
            series.setdefault(f"rank {word(one.get('rank'))} ({word(one.get('node'))})", []).append(one)
    if not series or not isinstance(told, dict):
        return None
    for points in series.values():
        points.sort(key=lambda one: one["seconds"])
    longest = max(points[-1]["seconds"] for points in series.values())
    counted = _finite(told.get("rounds"))
    ended = {"time": "ran for its full duration", "fault": "ended early because of a fault", "stop": "stopped"}
    drawn = [
        _over_time("Throughput", "samples/s", "samples_per_second", series, longest, worst=min),
        _over_time("Temperature", "°C", "temperature_c", series, longest, worst=max),
    ]
    errors = {name: found for name, points in series.items() if (found := _errors(points[-1]))}
    return {
        "plots": [one for one in drawn if one],
        "lasted": duration(longest),
        "rounds": plural(int(counted), "round") if counted is not None else "",
        "ended": ended.get(str(told.get("ended")), ""),
        "throttled": [name for name, points in series.items() if any(_throttled(one) for one in points)],
        "errors": [f"{name}: {found}" for name, found in errors.items()],
    }


def _over_time(
    title: str, unit: str, key: str, series: Mapping[str, Sequence[Mapping[str, Any]]], longest: float, worst: Any
) -> dict[str, Any] | None:
    seconds, word_of = (3600.0, "hours") if longest >= 2 * 3600 else (60.0, "minutes")
    lines: dict[str, list[tuple[float, float]]] = {}
    marks: list[plots.Mark] = []
    for name, points in series.items():
        for one in points:
            value = _finite(one.get(key))
            if value is None:
                continue
            at = one["seconds"] / seconds
            lines.setdefault(name, []).append((at, value))
            if _throttled(one) and len(marks) < THROTTLES:
                marks.append(plots.Mark(at, value, "bad", f"{name}: throttled, {_throttled(one)}"))
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        return None
    shown = _few_lines(lines, worst)
    values = [value for _, points in shown for _, value in points] + [mark.y for mark in marks]
    drawn = [plots.PlotLine(name, f"c{1 + place % 8}", points) for place, (name, points) in enumerate(shown)]
    x = plots.along(word_of, 0, longest / seconds, whole=False)
    return plots.plot(title, "", x, plots.upward(unit, values), drawn, marks)


def _few_lines(
    lines: Mapping[str, list[tuple[float, float]]], worst: Any
) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return the lines of all ranks. If there are many ranks, return only the worst line and the median line."""
    if len(lines) <= LINES:
        return list(lines.items())
    middles = {name: median(value for _, value in points) for name, points in lines.items()}
    odd = worst(middles, key=middles.__getitem__)
    ordered = sorted(middles, key=middles.__getitem__)
    usual = ordered[len(ordered) // 2]
    return [
        (f"{odd}, the {'lowest' if worst is min else 'highest'}", lines[odd]),
        (f"{usual}, the median", lines[usual]),
    ]


def _throttled(one: Mapping[str, Any]) -> str:
    reasons = one.get("throttled")
    if isinstance(reasons, list):
        return few([word(reason) for reason in reasons])
    return word(reasons) if isinstance(reasons, str) else "yes" if reasons is True else ""


def _errors(one: Mapping[str, Any]) -> str:
    ecc = one.get("ecc")
    if not isinstance(ecc, dict):
        return ""
    counts = [(word(kind), numeric(count)) for kind, count in ecc.items()]
    return ", ".join(f"{number(count)} {kind}" for kind, count in counts if count)


def _finite(value: Any) -> float | None:
    found = numeric(value)
    return found if found is not None and math.isfinite(found) else None


def _numbers(values: Any) -> list[float]:
    return [found for one in values if (found := _finite(one)) is not None] if isinstance(values, list) else []


def shared_data_tables(kept: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return one table per tested folder; None if no folder was tested."""
    found = [
        {
            "path": one["path"],
            "megabytes": one["megabytes"],
            "count": len(one["nodes"]),
            **split(one["nodes"]),
            "together": {
                name: f"{sum(row[name] or 0.0 for row in one['nodes']):.0f}" if len(one["nodes"]) > 1 else ""
                for name in ("write", "read")
            },
        }
        for one in kept.get("folders", [])
    ]
    return found or None


def split(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Split the nodes into rows that are shown and rows that are folded."""
    worst = {"write": lambda row: row["write"] or 0.0, "read": lambda row: row["read"] or 0.0, "seen": late}
    odd = (
        [row for key in worst.values() for row in sorted(nodes, key=key)[:SLOWEST]]
        if len(nodes) > MOST_UNFOLDED
        else nodes
    )
    texts = [(row in odd, {**row, **{name: shown(row[name]) for name in worst}}) for row in nodes]
    return {"rows": [text for first, text in texts if first], "folded": [text for first, text in texts if not first]}


def late(row: Mapping[str, Any]) -> float:
    """Sort key: nodes that did not see the other nodes' files come first, then the nodes with the longest delay."""
    return -math.inf if row["seen"] is None else -float(row["seen"])


def shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
