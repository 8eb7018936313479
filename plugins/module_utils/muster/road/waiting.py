"""Describe the nodes that a task waits for, and what pip and apt do on these nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ..verdict.reading import Count, Word, read_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+]*", re.ASCII)
GIGABYTE, MEGABYTE = 10**9, 10**6
BAR = 20  # characters
MOST_NODES = 5  # with their names or activities
COUNTED = {"install": "pip: installing", "unpack": "apt: unpacking", "configure": "apt: configuring"}


class ObservedWork(TypedDict):
    """An entry of the answer of the node program activity.

    doing: download, or a key of COUNTED. name: file or package. done, whole: bytes or packages; whole is 0 if unknown.
    """

    doing: Word
    name: Word
    done: Count
    whole: Count


class NodeActivity(NamedTuple):
    """part: the completed fraction of the work, or None."""

    text: str
    part: float | None = None


def node_activity(given: Any, sizes: Mapping[str, int], wheels: int) -> NodeActivity | None:
    """Return what the node does, or None if nothing is known. sizes: known sizes of files. wheels: number of packages
    that pip installs; 0 if unknown."""
    seen, _ = read_all(ObservedWork, given)
    if files := [one for one in seen if one["doing"] == "download"]:
        file = max(files, key=lambda one: (one["whole"], one["done"]))
        return downloading(file["name"], file["done"], sizes.get(file["name"], file["whole"]))
    for one in seen:
        whole = wheels if one["doing"] == "install" else one["whole"]
        if one["doing"] in COUNTED and one["done"] < whole:
            found = re.fullmatch(r"[a-z0-9.+-]+", one["name"], re.ASCII)
            text = f"{COUNTED[one['doing']]} {one['done']} of {whole} packages" + (f" ({found[0]})" if found else "")
            return NodeActivity(text, one["done"] / whole)
    return None


def downloading(file: str, size: int, total: int) -> NodeActivity:
    found = NAME.match(file)
    known = size <= total > 0
    whole, unit = (GIGABYTE, "GB") if max(size, total) >= GIGABYTE else (MEGABYTE, "MB")
    amounts = [f"{number / whole:.{1 if whole == GIGABYTE else 0}f}" for number in ([size, total] if known else [size])]
    text = f"downloading {found[0] if found else 'a package'}, {' of '.join(amounts)} {unit}"
    return NodeActivity(text, size / total if known else None)


def waiting_lines(
    seconds: float, nodes: Sequence[str], activities: Mapping[str, NodeActivity], width: int = 0
) -> list[str]:
    """Return the lines to redraw in a terminal of this width; without a terminal (0), one line. nodes: nodes that have
    not finished; empty for a task that runs once for all nodes."""
    more = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
    minutes, rest = divmod(int(seconds), 60)
    subject = f"waiting for {', '.join(nodes[:MOST_NODES])}{more}" if nodes else "running"
    line = f"  {subject}: {minutes}:{rest:02}"
    does = list(activities.items())[:MOST_NODES]
    if not width:
        texts = "; ".join(f"{node}: {one.text}" for node, one in does)
        return [f"{line} ({texts})" if texts else line]
    longest = max((len(node) for node, _ in does), default=0)
    rows = [f"  {node:{longest}} {bar(one.part)} {one.text}" for node, one in does]
    return [row[: width - 1] for row in (*rows, line)]


def bar(part: float | None) -> str:
    full = round(BAR * (part or 0))
    return " " * (BAR + 2) if part is None else f"[{'#' * full}{'.' * (BAR - full)}]"
