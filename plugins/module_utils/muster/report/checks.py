"""The grid of nodes and checks, and the skipped checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.families import place
from ..verdict.words import few
from .words import WORST, anchor, mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .artifacts import Artifacts

COLUMNS = 30  # checks; with more, passed checks share one column per family
FOLDED_FROM = 12  # nodes; a smaller cluster is shown completely
LISTED = 4  # checks skipped for one reason; more are one click away
SIGNS = {"pass": "·", "warn": "!", "fail": "✕", "unknown": "?", "skipped": "-", "": ""}
MEANINGS = {
    "pass": "OK",
    "warn": "slower now, or may fail later",
    "fail": "a launch fails or computes wrong results",
    "unknown": "could not be checked",
    "skipped": "not checked, see below",
}


def grid(kept: Artifacts, nodes: Sequence[str]) -> dict[str, Any] | None:
    """Return the grid, with a column per check and a row per node. In large clusters, nodes without problems are
    folded."""
    statuses: dict[tuple[str, str], str] = {}
    said: dict[tuple[str, str], str] = {}
    for finding in kept.verdict.get("findings", []):
        key, status = (finding["node"], finding["id"]), mark(finding["status"])
        if key not in statuses or WORST.index(status) < WORST.index(statuses[key]):
            statuses[key], said[key] = status, finding["summary"]
    # A check that ran without a finding has passed.
    for node, look in kept.health.items():
        for identity in look.get("ran", []):
            statuses.setdefault((node, identity), "pass")
    if not statuses:
        return None
    for entry in _skips(kept):
        key = (entry["node"], entry["id"])
        if key not in statuses:
            statuses[key], said[key] = "skipped", entry["why"]
    columns = _columns(statuses)
    rows: list[dict[str, Any]] = []
    for node in (*nodes, *sorted({name for name, _ in statuses} - set(nodes))):
        cells = [_cell(node, column, statuses, said) for column in columns]
        rows.append({"node": node, "cells": cells, "worst": _worst(cells)})
    bad = [row for row in rows if row["worst"] not in ("pass", "skipped")]
    folded = [row for row in rows if row not in bad] if len(rows) > FOLDED_FROM else []
    used = {cell["mark"] for row in rows for cell in row["cells"]}
    return {
        "columns": _heads(columns),
        "made": [{"family": column.family, "names": ", ".join(column.names)} for column in _columns(statuses, 0)],
        "rows": bad if folded else rows,
        "folded": folded,
        "legend": [
            {"mark": name, "sign": SIGNS[name], "text": text} for name, text in MEANINGS.items() if name in used
        ],
    }


def skipped(kept: Artifacts, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Return each reason for a skip once, with its checks and nodes."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for entry in _skips(kept):
        ids, names = groups.setdefault(entry["why"], ([], []))
        ids += [entry["id"]] if entry["id"] not in ids else []
        names += [entry["node"]] if entry["node"] and entry["node"] not in names else []
    return [
        {
            "why": why,
            "ids": "" if ids == ["node"] else ", ".join(sorted(ids)),
            "many": len(ids) if len(ids) > LISTED else 0,
            "nodes": "every node" if not names or len(names) == len(nodes) > 1 else few(names),
        }
        for why, (ids, names) in sorted(groups.items())
    ]


def _skips(kept: Artifacts) -> Iterator[dict[str, str]]:
    """Yield the skips in the nodes' health files, and the skips in the verdict that no health file contains."""
    there = set()
    for node, look in kept.health.items():
        for entry in look.get("skipped", []):
            there.add((node, entry["id"]))
            yield {"node": node, "id": str(entry["id"]), "why": str(entry["why"])}
    in_files = {identity for _, identity in there}
    for entry in kept.verdict.get("coverage", {}).get("skipped", []):
        node = str(entry.get("node", ""))
        if (node, entry["id"]) not in there and (node or entry["id"] not in in_files):
            yield {"node": node, "id": str(entry["id"]), "why": str(entry["why"])}


@dataclass(frozen=True)
class Column:
    """A column for one check, or for all checks of a family that passed everywhere. names: the names of the checks,
    without the family."""

    family: str
    names: tuple[str, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(f"{self.family}.{name}" if name else self.family for name in self.names)


def _columns(statuses: Mapping[tuple[str, str], str], most: int = COLUMNS) -> list[Column]:
    """Return one column per check. If there are more than `most`, the passed checks of a family share one column."""
    looked = {identity for (_, identity), status in statuses.items() if status != "skipped"}
    bad = {identity for (_, identity), status in statuses.items() if status not in ("skipped", "pass")}
    columns: list[Column] = []
    together: dict[str, list[str]] = {}
    for identity in sorted(looked, key=_place):
        family, _, name = identity.partition(".")
        if len(looked) > most and (identity not in bad or not most):
            together.setdefault(family, []).append(name)
        else:
            columns.append(Column(family, (name,)))
    columns += [Column(family, tuple(names)) for family, names in together.items()]
    return sorted(columns, key=lambda column: (place(column.family), len(column.names)))


def _cell(
    node: str, column: Column, statuses: Mapping[tuple[str, str], str], said: Mapping[tuple[str, str], str]
) -> dict[str, str]:
    marks = {identity: statuses[node, identity] for identity in column.ids if (node, identity) in statuses}
    # A column of several checks passes only if at least one of them was checked.
    status = next((one for one in (*WORST[:3], "pass", "skipped") if one in marks.values()), "")
    shown = {"mark": status, "sign": SIGNS[status], "title": "", "anchor": ""}
    identity = next((name for name, one in marks.items() if one == status), "")
    if status not in ("", "pass"):
        shown["title"] = f"{node}: {identity}: {said[node, identity]}"
    if status in ("fail", "warn", "unknown"):
        shown["anchor"] = anchor(identity, node)
    return shown


def _worst(cells: Sequence[Mapping[str, str]]) -> str:
    marks = {cell["mark"] for cell in cells}
    return next((status for status in WORST if status in marks and status != "skipped"), "unknown")


def _heads(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return the column names, split into family and check. `begins` marks a gap before the first column of another
    family."""
    return [
        {
            "ids": ", ".join(column.ids),
            "family": f"{column.family}." if column.names[0] else column.family,
            "name": column.names[0] if len(column.names) == 1 else f"{len(column.names)} checks",
            "begins": before is not None and before.family != column.family,
        }
        for before, column in zip((None, *columns), columns, strict=False)
    ]


def _place(identity: str) -> tuple[tuple[int, str], str]:
    return place(identity), identity
