"""Why a launch failed: the diagnosis, and one time line of what its ranks and nodes did last."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from .words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .artifacts import Artifacts

MOST_ROWS = 256
UNFOLDED = 96  # rows
BEFORE = 1.3  # how much longer than from the first event to the last the time line is
SHORTEST = 4.0  # seconds
LONGEST_SILENCE = 120.0  # of a stopped rank, to whose last line the time line reaches back
LONGEST_TEXT = 240  # characters of what a rank did last
# How a row ended, and the class of its colour; the worst first.
COLOURS = {"own": "f", "follows": "w", "stopped": "u", "alive": "s", "ended": "p"}
LEGEND = {
    "own": "failed by itself",
    "follows": "only followed: a peer, or the way to it, was gone",
    "stopped": "stopped or frozen before anything was ended",
    "alive": "ran until the launch was ended",
    "ended": "ended well",
}
STATES = {"T": "stopped (state T)", "t": "held by a debugger (state t)", "D": "waited for a disk or a driver (state D)"}


class Event(NamedTuple):
    """when: controller time."""

    when: float
    line: str
    follows: bool


def section(kept: Artifacts) -> dict[str, Any] | None:
    """None where nothing was diagnosed."""
    said, evidence = kept.diagnosis, kept.evidence
    if not said.get("lines"):
        return None
    named = [str(line).partition(": ") for line in said["lines"]]
    return {
        "word": said["word"],
        "mark": {"confirmed": "fail", "likely": "warn"}.get(str(said["word"]), "unknown"),
        "lines": [{"name": name, "text": text} for name, _, text in named],
        "candidates": [candidate(one) for one in [*said.get("candidates", []), *said.get("also_seen", [])]],
        "ruled_out": [candidate(one) for one in said.get("ruled_out", [])],
        "not_looked": [{"node": node, "why": why} for node, why in said.get("not_looked", {}).items()],
        "line": time_line(evidence, said) if evidence.get("ranks") else None,
    }


def candidate(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "says": one["says"],
        "word": one["word"],
        "why": "; ".join(f"{proof['text']} ({proof['source']})" for proof in one.get("proofs", [])),
        "open": list(one.get("open", [])),
    }


# ---------------------------------------------------------------- the time line


def time_line(evidence: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any] | None:
    """Every rank, and every node whose launcher or connection ended; in the order of nodes and ranks."""
    events = first_events(said)
    rows = list(all_rows(evidence, events))
    ends = [row["at"] for row in rows if row["at"]]
    end = max([*ends, float(evidence["launch"]["stop_began"] or 0.0)], default=0.0)
    if not end:
        return None
    silent = [row["said"] for row in rows if row["how"] == "stopped" and row["said"] > end - LONGEST_SILENCE]
    first = min([*ends, *silent], default=end)
    begin = max(float(evidence["launch"]["began"] or 0.0), end - max(SHORTEST, BEFORE * (end - first)))
    span = max(end - begin, 0.001) * 1.03
    order = {at: place for place, at in enumerate(sorted({row["at"] for row in rows if row["own_end"]}), 1)}
    for row in rows:
        row["order"] = order.get(row["at"], "") if row["own_end"] else ""
        row["until"] = percent((row["at"] or end) - begin, span)
        row["said_at"] = percent(row["said"] - begin, span) if row["said"] > begin else ""
    shown = sorted(rows, key=lambda row: not row["own_end"])[:MOST_ROWS]
    kept = [row for row in rows if row in shown]
    stop = evidence["launch"]["stop_began"]
    used = {row["how"] for row in kept}
    return {
        "rows": kept if len(kept) <= UNFOLDED else [row for row in kept if row["own_end"]][:UNFOLDED],
        "folded": [] if len(kept) <= UNFOLDED else kept,
        "left_out": len(rows) - len(kept),
        "stop": percent(stop - begin, span) if stop else "",
        "ticks": [{"at": percent(span - ago, span), "label": f"{duration(ago)} before"} for ago in ticks(span)],
        "legend": [{"css": COLOURS[how], "text": text} for how, text in LEGEND.items() if how in used],
    }


def first_events(said: Mapping[str, Any]) -> dict[tuple[str, Any], Event]:
    """How each rank and node ended, by the first symptom of it."""
    found: dict[tuple[str, Any], Event] = {}
    for one in said.get("symptoms", []):
        if not one["when"] or not str(one["id"]).startswith(("rank.", "agent.", "unit.", "node.")):
            continue
        event = Event(float(one["when"]), str(one["line"]), bool(one["victim"]))
        place = (str(one["node"]), one["rank"])
        if place not in found or event.when < found[place].when:
            found[place] = event
    return found


def all_rows(evidence: Mapping[str, Any], events: Mapping[tuple[str, Any], Event]) -> Iterator[dict[str, Any]]:
    shots = {
        shot["rank"]: (float(one["at"]), shot)
        for one in evidence.get("snapshots", {}).values()
        for shot in one.get("ranks", [])
    }
    ends = {(str(one["node"]), one["rank"]): one for one in evidence["ranks"]}
    stop = float(evidence["launch"]["stop_began"] or 0.0)
    for node in evidence["launch"]["nodes"]:
        name = str(node["node"])
        if (name, None) in events:
            of_node = events[name, None]
            yield row(name, "node", of_node, 0.0, of_node.line)
        for rank in node["ranks"]:
            event = events.get((name, rank)) or ended_well(ends.get((name, rank), {}), stop)
            at, shot = shots.get(rank, (0.0, {}))
            said = at - shot["said"] if shot.get("said") is not None else 0.0
            yield row(name, f"rank {rank}", event, said, did_last(event, shot), shot.get("state", ""))


def ended_well(end: Mapping[str, Any], stop: float) -> Event | None:
    """Of one that went before the launch was ended; whoever goes after that was ended with it."""
    at = float(end.get("gone_at") or 0.0)
    return Event(at, "", False) if at and (not stop or at < stop) else None


def row(node: str, who: str, event: Event | None, said: float, last: str, state: str = "") -> dict[str, Any]:
    if event and event.line:
        how = "follows" if event.follows else "own"
    elif state in STATES:
        how = "stopped"
    else:
        how = "ended" if event else "alive"
    return {
        "node": node,
        "who": who,
        "how": how,
        "css": COLOURS[how],
        "at": event.when if event else 0.0,
        "own_end": how in ("own", "follows"),
        "said": said,
        "last": last[:LONGEST_TEXT],
    }


def did_last(event: Event | None, shot: Mapping[str, Any]) -> str:
    """Its own end, else where it was when the launch was stopped."""
    if event and event.line:
        return event.line
    parts = [STATES.get(str(shot.get("state", "")), "")]
    flight = shot.get("flight") or {}
    if flight.get("last"):
        newest = flight["last"][-1]
        parts.append(f"{newest['operation']} #{newest['sequence']}")
    stack: Sequence[str] = shot.get("stack") or []
    parts += [f"in {stack[0]}"] if stack else []
    if not any(parts) and shot.get("wchan") not in (None, "", "0"):
        parts.append(f"in the kernel, {shot['wchan']}")
    return ", ".join(part for part in parts if part)


def percent(part: float, whole: float) -> str:
    return f"{min(max(100 * part / whole, 0.0), 100.0):.2f}"


def ticks(span: float) -> list[float]:
    """Round numbers of seconds before the end."""
    step: float = 10 ** math.floor(math.log10(span / 3))
    step = next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
    return [step * place for place in range(1, int(span / step) + 1)]
