"""Every node beside every check: the grid, and what was skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.words import few

from .words import WORST, anchor, mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .artifacts import Artifacts

FOLDED_FROM = 12  # nodes; a smaller cluster is shown whole
ORDER = ("launch", "smoke", "net", "versions", "gpu", "nvlink", "fabric_manager", "pci", "sw", "rdma", "eth")
SIGNS = {"pass": "·", "warn": "!", "fail": "✕", "unknown": "?", "skipped": "-", "": ""}
MEANINGS = {
    "pass": "as it should be",
    "warn": "slower, or breaks later",
    "fail": "a launch breaks or computes wrongly",
    "unknown": "could not be told",
    "skipped": "not looked at, see below",
}


def grid(kept: Artifacts, nodes: Sequence[str]) -> dict[str, Any] | None:
    """Columns are the checks that spoke of any node, rows the nodes; of many nodes those that are well are folded."""
    statuses: dict[tuple[str, str], str] = {}
    said: dict[tuple[str, str], str] = {}
    for finding in kept.verdict.get("findings", []):
        key, status = (finding["node"], finding["id"]), mark(finding["status"])
        if key not in statuses or WORST.index(status) < WORST.index(statuses[key]):
            statuses[key], said[key] = status, finding["summary"]
    if not statuses:
        return None
    for entry in _skips(kept):
        key = (entry["node"], entry["id"])
        if key not in statuses:
            statuses[key], said[key] = "skipped", entry["why"]
    looked = {identity for (_, identity), status in statuses.items() if status != "skipped"}
    columns = sorted(looked, key=_place)
    rows: list[dict[str, Any]] = []
    for node in (*nodes, *sorted({name for name, _ in statuses} - set(nodes))):
        cells = [_cell(node, identity, statuses.get((node, identity), ""), said) for identity in columns]
        rows.append({"node": node, "cells": cells, "worst": _worst(cells)})
    bad = [row for row in rows if row["worst"] not in ("pass", "skipped")]
    folded = [row for row in rows if row not in bad] if len(rows) > FOLDED_FROM else []
    used = {cell["mark"] for row in rows for cell in row["cells"]}
    return {
        "columns": _heads(columns),
        "rows": bad if folded else rows,
        "folded": folded,
        "legend": [
            {"mark": name, "sign": SIGNS[name], "text": text} for name, text in MEANINGS.items() if name in used
        ],
    }


def skipped(kept: Artifacts, nodes: Sequence[str]) -> list[dict[str, str]]:
    """Each reason once, with the checks and the nodes it holds for."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for entry in _skips(kept):
        ids, names = groups.setdefault(entry["why"], ([], []))
        ids += [entry["id"]] if entry["id"] not in ids else []
        names += [entry["node"]] if entry["node"] and entry["node"] not in names else []
    return [
        {
            "why": why,
            "ids": "" if ids == ["node"] else ", ".join(sorted(ids)),
            "nodes": "every node" if not names or len(names) == len(nodes) > 1 else few(names),
        }
        for why, (ids, names) in sorted(groups.items())
    ]


def _skips(kept: Artifacts) -> Iterator[dict[str, str]]:
    """A node's own are in its file; of the whole, those that name no node."""
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


def _cell(node: str, identity: str, status: str, said: Mapping[tuple[str, str], str]) -> dict[str, str]:
    shown = {"mark": status, "sign": SIGNS[status], "title": "", "anchor": ""}
    if status not in ("", "pass"):
        shown["title"] = f"{node}: {identity}: {said[node, identity]}"
    if status in ("fail", "warn", "unknown"):
        shown["anchor"] = anchor(identity, node)
    return shown


def _worst(cells: Sequence[Mapping[str, str]]) -> str:
    marks = {cell["mark"] for cell in cells}
    return next((status for status in WORST if status in marks and status != "skipped"), "unknown")


def _heads(columns: Sequence[str]) -> list[dict[str, Any]]:
    """The columns' names in two parts; where another family begins there is a gap."""
    heads = []
    before = ""
    for identity in columns:
        family, dot, name = identity.partition(".")
        heads.append(
            {"id": identity, "family": f"{family}{dot}", "name": name, "begins": bool(before != family and before)}
        )
        before = family
    return heads


def _place(identity: str) -> tuple[int, str, str]:
    family = identity.partition(".")[0]
    return (ORDER.index(family) if family in ORDER else len(ORDER), family, identity)
