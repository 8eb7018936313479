"""What all ranks reported, for a person who started the test by hand. No torch in this file."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Reports = Mapping[int, Mapping[str, Mapping[str, Any]]]

WORST_FIRST = ("lost", "timeout", "failed", "wrong", "ok", "skipped")
WIDEST = 100  # characters of a reason


def numbers(facts: Iterable[Mapping[str, Any]], key: str) -> list[float]:
    return [float(each[key]) for each in facts if isinstance(each.get(key), (int, float))]


def middle(key: str, unit: str) -> Callable[[list[Mapping[str, Any]]], str]:
    return lambda facts: f"{median(found):.3g} {unit}" if (found := numbers(facts, key)) else ""


def busbw(facts: list[Mapping[str, Any]]) -> str:
    for curve in (curve for each in facts for curve in each.get("curves", [])):
        if curve["level"] in ("all", "across") and curve["points"]:
            return f"{curve['points'][-1]['busbw']:.3g} GB/s ({curve['collective']}, busbw)"
    return ""


# The one number of a stage that has one.
NUMBERS: dict[str, Callable[[list[Mapping[str, Any]]], str]] = {
    "device": middle("gemm_tflops", "TFLOPS"),
    "bandwidth": busbw,
    "stragglers": middle("compute_ms", "ms a step"),
    "train": lambda facts: f"{sum(numbers(facts, 'samples_per_second')):.0f} samples/s",
}


def table(names: Iterable[str], reports: Reports) -> str:
    """One line a stage: how it ended, how long it took, its number, and where and why where it is not ok."""
    lines = [f"{'stage':12} {'result':8} {'seconds':>7}  number, or place and reason"]
    for name in names:
        told = {rank: stages[name] for rank, stages in reports.items() if name in stages}
        missing = sorted(set(reports) - set(told))
        status = min((one["status"] for one in told.values()), key=WORST_FIRST.index, default="lost")
        seconds = max((one["seconds"] for one in told.values()), default=0.0)
        if status == "ok" and not missing:
            text = NUMBERS.get(name, lambda _facts: "")([one["facts"] for one in told.values()])
        else:
            bad = missing or [rank for rank, one in told.items() if one["status"] == status]
            why = "it said nothing" if missing else told[bad[0]]["why"]
            text = (f"rank {', '.join(map(str, bad))}: {why}" if status != "skipped" else why)[:WIDEST]
        lines.append(f"{name:12} {status:8} {seconds:7.1f}  {text}".rstrip())
    return "\n".join(lines)


def merged(mode: str, reports: Reports) -> dict[str, Any]:
    """smoke.json of a run by hand: what each rank reported of each stage."""
    return {
        "schema": 2,
        "mode": mode,
        "world_size": len(reports),
        "ranks": [{"rank": rank, "stages": dict(stages)} for rank, stages in sorted(reports.items())],
    }
