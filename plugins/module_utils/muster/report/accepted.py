"""Overview of the acceptance test: stage results by rank, and the comparison with the accepted state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..acceptance.metrics import positive, rows, word
from ..verdict.words import few
from .words import duration, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Result of a stage on a rank -> CSS class and displayed word. Worst first.
ENDS = {
    "lost": ("fail", "process lost"),
    "timeout": ("fail", "timed out"),
    "failed": ("fail", "failed"),
    "wrong": ("fail", "wrong"),
    "": ("unknown", "not reported"),
    "skipped": ("skipped", "not run"),
    "ok": ("pass", "done"),
}
LONGEST = 400  # characters of a reason
EACH_UP_TO = 128  # ranks; with more, neighbouring cells of one colour are merged


def overview(smoke: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the stages in order. Each stage has its worst result, its duration in seconds, and a strip of all
    ranks."""
    ranks = rows(smoke, "ranks")
    by_rank = [(rank, rank["stages"]) for rank in ranks if isinstance(rank.get("stages"), dict)]
    names = list(dict.fromkeys(str(name) for _, stages in by_rank for name in stages))
    if not names:
        return None
    stages = [_stage(name, by_rank) for name in names]
    seconds = sum(stage["seconds"] for stage in stages)
    used = {cell["mark"] for stage in stages for cell in stage["strip"]["cells"]}
    return {
        "mode": word(smoke.get("mode")),
        "stages": stages,
        "count": len(ranks),
        "lasted": duration(seconds),
        "legend": [mark for mark in ("pass", "fail", "unknown", "skipped") if mark in used],
    }


def _stage(name: str, by_rank: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    cells: list[tuple[str, str]] = []
    whys: dict[tuple[str, str], list[str]] = {}
    longest, slowest = 0.0, ""
    for rank, stages in by_rank:
        report = stages.get(name)
        report = report if isinstance(report, dict) else {}
        status = str(report.get("status", ""))
        status = status if status in ENDS else ""
        why, seconds = str(report.get("why") or "")[:LONGEST], positive(report.get("seconds")) or 0.0
        place = f"rank {word(rank.get('rank'))} ({word(rank.get('node'))})"
        if seconds > longest:
            longest, slowest = seconds, place
        if status not in ("ok", ""):
            whys.setdefault((status, why), []).append(place)
        cells.append((status, f"{place}: {ENDS[status][1]}{f', {seconds:.1f} s' if seconds else ''}"))
    worst = next(status for status in ENDS if status in {status for status, _ in cells})
    return {
        "name": name,
        "mark": ENDS[worst][0],
        "word": ENDS[worst][1],
        "seconds": longest,
        "lasted": duration(longest) if longest else "",
        "slowest": slowest,
        "strip": strip(cells),
        "whys": [
            f"{'all ranks' if len(places) == len(cells) > 1 else few(places)}: {why or ENDS[status][1]}"
            for (status, why), places in whys.items()
        ][:3],
    }


def strip(cells: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return one cell per rank. If there are many ranks, adjacent cells of the same colour are merged."""
    drawn: list[dict[str, Any]] = []
    for place, (status, title) in enumerate(cells):
        mark = ENDS[status][0]
        if len(cells) > EACH_UP_TO and drawn and drawn[-1]["mark"] == mark:
            drawn[-1]["wide"] += 1
            drawn[-1]["title"] = ""
        else:
            drawn.append({"x": place, "wide": 1, "mark": mark, "title": title})
    return {"count": len(cells), "cells": drawn}


def beside(smoke: Mapping[str, Any]) -> dict[str, Any] | None:
    """Compare this run's values with the accepted ones; None if there is no accepted state."""
    kept = smoke.get("accepted")
    if not isinstance(kept, dict):
        return None
    values = [_beside(one) for one in rows(kept, "values")]
    listed = sorted((one for one in values if one), key=lambda one: (not one["drop"], -one["lost"]))
    about = {"run": word(kept.get("run")), "date": word(kept.get("date"))[:10], "accepted": bool(kept.get("accepted"))}
    if not listed and not about["accepted"]:
        return None
    # Every drop, and the worst value of each kind.
    worst = {one["title"]: one for one in reversed(listed)}
    first = [one for one in listed if one["drop"] or worst[one["title"]] is one]
    return {**about, "first": first, "rest": [one for one in listed if one not in first]}


def _beside(one: Mapping[str, Any]) -> dict[str, Any] | None:
    now, before = positive(one.get("now")), positive(one.get("before"))
    lost = one.get("lost")
    if now is None or before is None or not isinstance(lost, (int, float)):
        return None
    change = 100 * (now / before - 1)
    return {
        "title": word(one.get("title")),
        "where": word(one.get("where")),
        "unit": word(one.get("unit")),
        "now": number(now),
        "before": number(before),
        "change": f"{change:+.0f} %" if abs(change) >= 0.5 else "±0 %",
        "lost": float(lost),
        "drop": one.get("drop") is True,
    }
