"""Compare speed and accuracy of the same training in one process, on one node and on all nodes.

The last event of rank 0 of each launch is a `summary`. Its content is untrusted input: values that are not numbers are
treated as unknown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.words import few, plural
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..launch.planned import LaunchPlan

MEASURED = ("seconds", "samples_per_second", "global_batch", "accuracy", "loss", "memory_mb")
HEADINGS = ("", "time, s", "samples/s", "speed-up", "efficiency", "memory, MB", "accuracy")
TOO_GOOD = 1.1  # of the ideal; up to this, more than 1 is noise
NO_SUMMARY = 'rank 0 did not print a line @muster {"event": "summary", "samples_per_second": ...}'


class ComparedLaunch(NamedTuple):
    """A launch to compare. plan: the plan of this launch. events: the events that its ranks reported."""

    plan: LaunchPlan
    events: Sequence[Mapping[str, Any]]


def compare(launches: Sequence[ComparedLaunch], skipped: Sequence[Mapping[str, str]] = ()) -> dict[str, Any]:
    """Return the content of comparison.json. launches: the first one is the smallest and the base of the comparison.

    efficiency: fraction of the ideal, which is the speed of the first launch times the ratio of GPUs. If there are no
    GPUs, nodes are counted instead, because a single process can use all CPUs of its node.
    """
    rows = [row_of(launch) for launch in launches]
    for row in rows:
        if (own := row["samples_per_second"]) and (base := rows[0]["samples_per_second"]):
            row["speed_up"] = round(own / base, 3)
            row["efficiency"] = round(own / base * rows[0]["units"] / row["units"], 3)
    return {"schema": 1, "wrong": list(wrong(rows)), "rows": rows, "skipped": list(skipped)}


def row_of(launch: ComparedLaunch) -> dict[str, Any]:
    plan = launch.plan
    said: Mapping[str, Any] = next(
        (event for event in launch.events if event.get("event") == "summary" and event.get("from_rank") == 0), {}
    )
    nodes, ranks = plan.names, plan.world_size
    known = {name: measured(said.get(name)) for name in MEASURED}
    where = "1 process" if ranks == 1 else f"{plural(ranks, 'process').replace('ss', 'sse')} on {few(nodes)}"
    return {
        "name": where,
        "nodes": nodes,
        "ranks": ranks,
        "backend": plan.backend,
        "units": ranks if plan.backend == "nccl" else len(nodes),
        **known,
        "speed_up": None,
        "efficiency": None,
        "launch_id": plan.launch_id,
        "why": "" if known["samples_per_second"] else NO_SUMMARY,
    }


def measured(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and math.isfinite(found) and found >= 0 else None


def wrong(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the reasons why the launches cannot be compared, as one sentence each."""
    found = [f"{row['name']}: {row['why']}" for row in rows if row["why"]]
    batches = {row["global_batch"] for row in rows if not row["why"]}
    told = ", ".join(f"{row['name']} {shown(row['global_batch'])}" for row in rows if not row["why"])
    if None in batches:
        found.append(f"not every launch reported its global_batch, which must be the same in all launches: {told}")
    elif len(batches) > 1:
        found.append(f"the launches used different global batches: {told}")
    if len({row["backend"] for row in rows}) > 1:
        found.append(f"the launches used different backends: {', '.join(row['backend'] for row in rows)}")
    return found


def sentence(comparison: Mapping[str, Any]) -> str:
    """Return the result as one line."""
    rows = comparison["rows"]
    if comparison["wrong"]:
        return f"the launches finished, but cannot be compared: {'; '.join(comparison['wrong'])}"
    first, last = rows[0], rows[-1]
    if len(rows) == 1:
        return f"{last['name']}: {shown(last['samples_per_second'])} samples/s; no other launch to compare with"
    text = f"{last['name']} trained {last['speed_up']:.2f} times as fast as {first['name']}"
    text += f" ({percent(last['efficiency'])} of the ideal)"
    if first["accuracy"] is not None and last["accuracy"] is not None:
        text += f", accuracy {last['accuracy']:.3f} and {first['accuracy']:.3f}"
    return text


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of a row as text. Their order is that of HEADINGS."""
    speed_up = "" if row["speed_up"] is None else f"{row['speed_up']:.2f}"
    accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.3f}"
    rest = [shown(row["memory_mb"]), accuracy]
    return [
        row["name"],
        shown(row["seconds"]),
        shown(row["samples_per_second"]),
        speed_up,
        percent(row["efficiency"]),
        *rest,
    ]


def table(comparison: Mapping[str, Any]) -> str:
    """Return the comparison as a text table with notes."""
    lines = [HEADINGS, *(tuple(cells(row)) for row in comparison["rows"])]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    ends = [[cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)] for line in lines]
    shown_lines = ["  ".join([line[0].ljust(widths[0]), *end]).rstrip() for line, end in zip(lines, ends, strict=True)]
    batches = {row["global_batch"] for row in comparison["rows"]} - {None}
    notes = [f"global batch {shown(batch)} in every launch" for batch in batches if len(batches) == 1]
    if any((row["efficiency"] or 0) > TOO_GOOD for row in comparison["rows"]):
        slowed = comparison["rows"][0]["name"]
        notes.append(f"speed-up above the ideal: {slowed} was slowed down, for example by other processes on its node")
    notes += [f"not compared: {entry['name']}: {entry['why']}" for entry in comparison["skipped"]]
    return "\n".join([*shown_lines, *notes])


def percent(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.0f} %"


def shown(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
