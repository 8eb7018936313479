"""Earlier runs of this cluster, and runs that were slower than the runs before them."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from ..acceptance.metrics import metrics, positive
from . import plots
from .words import WORDS, duration, moment, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .artifacts import Artifacts

SHOWN = 30
LONGEST = 140  # characters of a sentence
COMPARED = 5  # earlier runs with the same layout
MARKS = {"healthy": "pass", "degraded": "warn", "failed": "fail", "stopped": "fail"}
DROP = 0.85  # of their median
TRENDS = (
    ("samples_per_second", "Throughput of each run", "samples/s"),
    ("busbw", "All-reduce of each run, busbw", "GB/s"),
    ("efficiency", "Scaling efficiency of each run", "of linear"),
    ("gemm_tflops", "Slowest GPU of each run", "TFLOP/s"),
)


def figures(kept: Artifacts) -> dict[str, Any]:
    """Return the key figures of a run for its run.json and the table of runs. There are only a few, so that many runs
    can be read."""
    plan = kept.plan
    throughput = [link["gbps"] for link in kept.network.get("links", []) if link.get("gbps") is not None]
    head = {
        "nodes": (len(plan.nodes) if plan else 0) or len(kept.network.get("nodes", [])) or None,
        "world_size": plan.world_size if plan else None,
        "backend": plan.backend if plan else None,
        "samples_per_second": kept.smoke.get("samples_per_second"),
        "loss_last": kept.smoke.get("loss_last"),
        "gbps": median(throughput) if throughput else None,
        **_of_acceptance(kept.smoke),
    }
    return {name: value for name, value in head.items() if value is not None}


def _of_acceptance(smoke: Mapping[str, Any]) -> dict[str, Any]:
    """Return the all-reduce bandwidth, the scaling efficiency and the rate of the slowest GPU."""
    measured = metrics(smoke)
    levels = (measured.get(f"busbw all_reduce {level}") for level in ("across", "all"))
    busbw = next((one.value for one in levels if one), None)
    efficiency = measured.get("efficiency all")
    rates = [one.value for one in measured.values() if one.kind == "gemm"]
    return {
        "busbw": busbw,
        "efficiency": efficiency.value if efficiency else None,
        "gemm_tflops": min(rates, default=None),
    }


def trends(history: Sequence[Mapping[str, Any]], this: str) -> list[dict[str, Any]]:
    """Plot the figures of the newest runs that have the same layout as this run, oldest first. Drops are marked."""
    layout = next((_layout(run) for run in history if run.get("id", "") == this), None)
    alike = [run for run in history[:SHOWN] if _layout(run) == layout][::-1] if layout else []
    drawn = []
    for key, title, unit in TRENDS:
        points = [
            (moment(str(run.get("began", ""))), value)
            for run in alike
            if (value := positive((run.get("figures") or {}).get(key))) is not None
        ]
        if len(points) > 1:
            drawn.append(_trend(title, unit, points))
    return drawn


def _trend(title: str, unit: str, points: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Plot one figure. points: (start time, value) of each run."""
    marks = []
    for place, (began, value) in enumerate(points):
        usual = median([before for _, before in points[max(0, place - COMPARED) : place]] or [value])
        bad = value < DROP * usual
        less = f", {100 - 100 * value / usual:.0f} % less" if bad else ""
        marks.append(plots.Mark(place, value, "bad" if bad else "c1", f"{began}: {number(value)} {unit}{less}"))
    last = len(points) - 1
    places = dict.fromkeys((0, last // 2, last) if last > 3 else (0, last))
    # Month and day; the table below has the year.
    x = plots.Axis("runs, newest on the right", 0, last, [(place, points[place][0][5:10]) for place in places])
    y = plots.upward(unit, [value for _, value in points])
    return plots.plot(
        title, "", x, y, [plots.PlotLine("", "c1", [(n, value) for n, (_, value) in enumerate(points)])], marks
    )


def table(history: Sequence[Mapping[str, Any]], this: str) -> list[dict[str, Any]] | None:
    """Return the runs, newest first. Each run is compared with earlier runs. None if there is only this run."""
    if len(history) < 2:
        return None
    most = max((_speed(run) or 0.0 for run in history[:SHOWN]), default=0.0)
    rows = []
    for place, run in enumerate(history[:SHOWN]):
        kept = run.get("figures") or {}
        speed = _speed(run)
        status = str(run.get("status", "unknown"))
        rows.append(
            {
                "id": run.get("id", ""),
                "this": run.get("id", "") == this,
                "began": moment(str(run.get("began", ""))),
                "lasted": duration(run.get("seconds")),
                "playbook": str(run.get("playbook", "")) + (" --check" if run.get("check") else ""),
                "mark": MARKS.get(status, "unknown"),
                "word": WORDS.get(status, WORDS["unknown"]),
                "sentence": _cut(str(run.get("sentence", ""))),
                "ranks": kept.get("world_size", ""),
                "speed": number(speed),
                "part": round(100 * speed / most, 1) if speed and most else 0,
                "drop": dropped(run, history[place + 1 :]),
                "gbps": number(kept.get("gbps")),
                "page": bool(run.get("page")),
            }
        )
    return rows


def dropped(run: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]) -> str:
    """Return how much slower the run is than earlier runs with the same layout; "" if the run is not slower or has no
    comparable run."""
    speed, layout = _speed(run), _layout(run)
    alike = [other for other in (_speed(one) for one in earlier if _layout(one) == layout) if other][:COMPARED]
    if not speed or not alike or speed >= DROP * median(alike):
        return ""
    return f"{100 - 100 * speed / median(alike):.0f} % less"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"


def _speed(run: Mapping[str, Any]) -> float | None:
    value = (run.get("figures") or {}).get("samples_per_second")
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def _layout(run: Mapping[str, Any]) -> tuple[Any, ...]:
    kept = run.get("figures") or {}
    return kept.get("nodes"), kept.get("world_size"), kept.get("backend")
