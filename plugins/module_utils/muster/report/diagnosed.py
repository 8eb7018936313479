"""The diagnosis of a failed launch, with a timeline of the last events of its ranks and nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from .words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .artifacts import Artifacts

MOST_ROWS = 256  # ranks
UNFOLDED = 24  # rows; with more ranks, ranks of a node with the same outcome share a row
BEFORE = 1.3  # length of the time line relative to the time from the first to the last event
SHORTEST = 4.0  # seconds
LONGEST_SILENCE = 120.0  # seconds since the last line of a stopped rank that the time line may include
LONGEST_TEXT = 240  # characters of a rank's last action
# Outcome of a row -> CSS class of its colour; worst first.
COLOURS = {"own": "f", "follows": "w", "stopped": "u", "alive": "s", "ended": "p"}
LEGEND = {
    "own": "failed with an error of its own",
    "follows": "lost its connection to a failed peer",
    "stopped": "stopped or frozen before Muster ended the launch",
    "alive": "ran until Muster ended the launch",
    "ended": "succeeded",
}
STATES = {"T": "stopped (state T)", "t": "held by a debugger (state t)", "D": "waiting for a disk or driver (state D)"}


class Event(NamedTuple):
    """The end of a rank or node. when: controller time in seconds."""

    when: float
    line: str
    follows: bool


def section(kept: Artifacts) -> dict[str, Any] | None:
    """Return the section about the diagnosis; None if no launch was diagnosed."""
    said, evidence = kept.diagnosis, kept.evidence
    if not said.get("lines"):
        return None
    # A run of an earlier release has only `lines`.
    parts = said["parts"].items() if "parts" in said else (("", line) for line in said["lines"])
    return {
        "word": said["word"],
        "mark": {"confirmed": "fail", "likely": "warn"}.get(str(said["word"]), "unknown"),
        "lines": [{"name": name, "text": text} for name, text in parts],
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
    """Return a row for each rank, and for each node whose launcher or connection ended, in the order of nodes and
    ranks."""
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
    kept = sorted(rows, key=telling)[:MOST_ROWS]
    shown = sorted(together(rows), key=telling) if len(rows) > UNFOLDED else rows
    stop = evidence["launch"]["stop_began"]
    used = {row["how"] for row in kept}
    return {
        "rows": shown[:UNFOLDED],
        "more": len(shown[UNFOLDED:]),
        "folded": kept if len(rows) > UNFOLDED else [],
        "left_out": len(rows) - len(kept),
        "stop": percent(stop - begin, span) if stop else "",
        "ticks": [{"at": percent(span - ago, span), "label": f"{duration(ago)} before"} for ago in ticks(span)],
        "legend": [{"css": COLOURS[how], "text": text} for how, text in LEGEND.items() if how in used],
    }


def telling(row: Mapping[str, Any]) -> tuple[bool, float]:
    """Sort key: ranks that failed or stopped come first, then ranks that lost a peer. Both groups are sorted by
    time."""
    return row["how"] not in ("own", "stopped"), row["at"] or math.inf


def together(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge the rows of a node's ranks that have the same outcome. The merged row is that of the rank that ended
    first."""
    groups: dict[tuple[str, str, bool, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        own_words = row["last"] if row["how"] in ("own", "stopped") else ""
        groups.setdefault((row["node"], row["how"], row["rank"] is None, own_words), []).append(row)
    found = []
    for its in groups.values():
        first = min(its, key=lambda row: row["at"] or math.inf)
        found.append(
            {**first, "who": first["who"] if len(its) == 1 else f"ranks {spans([row['rank'] for row in its])}"}
        )
    return found


def spans(ranks: Sequence[int]) -> str:
    """Format rank numbers as in "16, 18-23"."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def first_events(said: Mapping[str, Any]) -> dict[tuple[str, Any], Event]:
    """Return the earliest symptom that reports the end of each rank and node."""
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
            yield row(name, None, of_node, 0.0, of_node.line)
        for rank in node["ranks"]:
            event = events.get((name, rank)) or ended_well(ends.get((name, rank), {}), stop)
            at, shot = shots.get(rank, (0.0, {}))
            said = at - shot["said"] if shot.get("said") is not None else 0.0
            yield row(name, rank, event, said, did_last(event, shot), shot.get("state", ""))


def ended_well(end: Mapping[str, Any], stop: float) -> Event | None:
    """Return the exit of a rank that exited before the launch was ended; None if the rank ended together with the
    launch."""
    at = float(end.get("gone_at") or 0.0)
    return Event(at, "", False) if at and (not stop or at < stop) else None


def row(node: str, rank: int | None, event: Event | None, said: float, last: str, state: str = "") -> dict[str, Any]:
    """Return a row of the timeline. rank: None for the node as a whole."""
    if event and event.line:
        how = "follows" if event.follows else "own"
    elif state in STATES:
        how = "stopped"
    else:
        how = "ended" if event else "alive"
    return {
        "node": node,
        "rank": rank,
        "who": "node" if rank is None else f"rank {rank}",
        "how": how,
        "css": COLOURS[how],
        "at": event.when if event else 0.0,
        "own_end": how in ("own", "follows"),
        "said": said,
        "last": last[:LONGEST_TEXT],
    }


def did_last(event: Event | None, shot: Mapping[str, Any]) -> str:
    """Return the rank's last line or, if there is none, its state, collective and stack when the launch was ended."""
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
    """Return the positions of ticks at round numbers of seconds before the end."""
    step: float = 10 ** math.floor(math.log10(span / 3))
    step = next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
    return [step * place for place in range(1, int(span / step) + 1)]
