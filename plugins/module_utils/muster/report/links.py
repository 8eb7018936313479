"""Maps of the links between nodes: one map per measure, with sources as rows and destinations as columns.

A cell is CELL wide. In a small cluster each cell is an element with its own tooltip; in a large one all cells of a
colour are one path, which keeps the map of 200 nodes at about 100 kB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ..net_probe.blame import MOST
from ..net_probe.quality import FAR, FAR_SECONDS, LOSS, SLOW
from .words import number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CELL = 10
EACH_UP_TO = 24  # nodes with separate cells and tooltips
TEXT_UP_TO = 10  # nodes with figures in the cells
LABELS = 26  # names beside a map, at most
LONGEST = 16  # characters of a name
LETTERS = 12.5  # pixels
PAIRS = 40  # bad pairs that are listed

# Result of a connection attempt -> colour, description, and sign in a small map.
OUTCOMES = {
    "ok": ("good", "reached", "✓"),
    "refused": ("bad2", "refused: no listener", "R"),
    "dropped": ("bad3", "no reply: packets dropped", "D"),
    "prohibited": ("bad4", "rejected by a firewall", "P"),
    "no_route": ("bad5", "no route", "N"),
    "wrong_host": ("bad6", "answered by another machine", "W"),
    "foreign": ("bad1", "answered by another process", "F"),
    "not_tried": ("none", "not tried", ""),
}
COLORS = ("good", "bad1", "bad2", "bad3", "bad4", "bad5", "bad6", "none")
SPARSE = 0.2  # of the cells; fewer are drawn larger
FLOOR_MS = 0.25  # below it, differences between round trips come from the processors


@dataclass(frozen=True)
class Shade:
    """A class of values. It has a colour, a label, and a flag for values that are bad by the thresholds of the
    findings."""

    css: str
    label: str
    bad: bool = False


UNMEASURED = Shade("none", "not measured")
Read = tuple[Shade, str, str]  # shade, text in the cell, tooltip


def maps(network: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the maps, and the pairs of nodes that cannot connect to each other."""
    nodes = [str(name) for name in network.get("nodes", [])]
    place = {name: index for index, name in enumerate(nodes)}
    cells = {
        (place[link["from"]], place[link["to"]]): link
        for link in network.get("links", [])
        if link["from"] in place and link["to"] in place
    }
    if len(nodes) < 2 or not cells:
        return None
    drawn = [draw("Reachability", "connection to a launch port", nodes, cells, reached)]
    for key, title, about, reader in (
        ("rtt_ms", "Round trip", "milliseconds", slow),
        ("gbps", "Throughput", "Gb/s, from row to column", narrow),
        ("loss", "Loss", "percentage of packets lost", lossy),
        ("path_mtu", "Path MTU", "bytes", small),
    ):
        values = [link[key] for link in cells.values() if link.get(key) is not None]
        # Loss and MTU get a map only if they differ between links.
        if values and (key in ("rtt_ms", "gbps") or len(set(values)) > 1):
            drawn.append(draw(title, about, nodes, cells, reader(values)))
    bad = [
        {"from": link["from"], "to": link["to"], "what": _outcome(link)[1], "ports": _ports(link)}
        for link in cells.values()
        if _outcome(link)[0] not in ("good", "none")
    ]
    return {
        "count": len(nodes),
        "port": network.get("port", ""),
        "maps": [one for one in drawn if not one["well"]],
        "folded": [one for one in drawn if one["well"]],
        "pairs": bad[:PAIRS],
        "more": len(bad[PAIRS:]),
    }


# ---------------------------------------------------------------- cells


def reached(link: Mapping[str, Any]) -> Read:
    css, text, sign = _outcome(link)
    return Shade(css, text, css not in ("good", "none")), sign, f"{text}{_tail(_ports(link))}"


def slow(values: Sequence[float]) -> Callable[[Mapping[str, Any]], Read]:
    usual = max(median(values), FLOOR_MS)
    limits = (2 * usual, 5 * usual, max(FAR * usual, usual + 1000 * FAR_SECONDS))
    shades = (
        Shade("good", f"up to {number(limits[0])} ms"),
        Shade("bad1", f"up to {number(limits[1])} ms"),
        Shade("bad2", f"up to {number(limits[2])} ms"),
        Shade("bad3", f"more than {number(limits[2])} ms", bad=True),
    )
    return _reader("rtt_ms", " ms", lambda value: shades[sum(value > limit for limit in limits)])


def narrow(
    values: Sequence[float], unit: str = "Gb/s", usual: float | None = None, slow: float | None = None
) -> Callable[[Mapping[str, Any]], Read]:
    """Return a function that classifies rates. usual: the reference value, by default the median. slow: a rate below
    this fraction of the reference value is a finding."""
    usual, slow = median(values) if usual is None else usual, SLOW if slow is None else slow
    limits = (max(0.6, slow) * usual, max(0.45, slow) * usual, slow * usual)
    shades = (
        Shade("good", f"{number(limits[0])} {unit} and more"),
        Shade("bad1", f"{number(limits[1])} {unit} and more"),
        Shade("bad2", f"{number(limits[2])} {unit} and more"),
        Shade("bad3", f"less than {number(limits[2])} {unit}", bad=True),
    )
    return _reader("gbps", f" {unit}", lambda value: shades[sum(value < limit for limit in limits)])


def lossy(_values: Sequence[float]) -> Callable[[Mapping[str, Any]], Read]:
    shades = (
        Shade("good", "none"),
        Shade("bad1", "up to 0.1 %"),
        Shade("bad2", "up to 1 %"),
        Shade("bad3", "more than 1 %", bad=True),
    )

    def shade(value: float) -> Shade:
        return shades[(value > 0) + (value > LOSS / 10) + (value >= LOSS)]

    return _reader("loss", " %", shade, scale=100)


def small(values: Sequence[float]) -> Callable[[Mapping[str, Any]], Read]:
    most = max(values)
    shades = (Shade("good", number(most)), Shade("bad2", f"less than {number(most)}", bad=True))
    return _reader("path_mtu", "", lambda value: shades[value < most])


def _reader(
    key: str, unit: str, shade_of: Callable[[float], Shade], scale: float = 1
) -> Callable[[Mapping[str, Any]], Read]:
    def read(link: Mapping[str, Any]) -> Read:
        value = link.get(key)
        if value is None:
            return UNMEASURED, "", UNMEASURED.label
        return shade_of(value), _brief(value * scale), f"{number(value * scale)}{unit}"

    return read


def _brief(value: float) -> str:
    """Format a value with the few digits that fit into a cell."""
    return f"{value:.{0 if value >= 100 or value == 0 else 1 if value >= 10 else 2}f}"


# ---------------------------------------------------------------- drawing


def draw(
    title: str,
    about: str,
    nodes: Sequence[str],
    cells: Mapping[tuple[int, int], Mapping[str, Any]],
    read: Callable[[Mapping[str, Any]], Read],
) -> dict[str, Any]:
    """Return one map with its cells or paths, its names and its legend."""
    count = len(nodes)
    seen = {pair: read(link) for pair, link in sorted(cells.items())}
    shades = {pair: shade for pair, (shade, _, _) in seen.items()}
    rows = _culprits(shades, count, 0)
    columns = _culprits(shades, count, 1)
    pixels = max(20, min(44, 380 / count)) if count <= EACH_UP_TO else 800 / count  # of a cell, on a wide screen
    size = LETTERS * CELL / pixels
    gutter = round(min(LONGEST, max(len(name) for name in nodes)) * size * 0.62 + size, 1)
    return {
        "title": title,
        "about": about,
        "side": count * CELL,
        "gutter": gutter,
        "letters": round(size, 1),
        "apart": round(size / 3, 1),
        "rows": _labels(nodes, rows, size),
        "columns": _labels(nodes, columns, size),
        "cells": _each(nodes, seen) if count <= EACH_UP_TO else [],
        "paths": [] if count <= EACH_UP_TO else _paths(shades, count),
        "figures": count <= TEXT_UP_TO,
        "width": round((count * CELL + gutter) * pixels / CELL),
        "large": count > EACH_UP_TO,
        "well": count > EACH_UP_TO and not any(shade.bad for shade in shades.values()),
        "legend": _legend(shades),
        "hint": _hint(title, [nodes[index] for index in rows], [nodes[index] for index in columns]),
    }


def _each(nodes: Sequence[str], seen: Mapping[tuple[int, int], Read]) -> list[dict[str, Any]]:
    return [
        {
            "x": column * CELL,
            "y": row * CELL,
            "css": shade.css,
            "text": text,
            "title": f"{nodes[row]} → {nodes[column]}: {told}",
        }
        for (row, column), (shade, text, told) in seen.items()
    ]


def _paths(shades: Mapping[tuple[int, int], Shade], count: int) -> list[dict[str, str]]:
    """Return one path per colour. Adjacent cells in a row form one rectangle. Sparse cells are drawn larger."""
    measured = {pair: shade for pair, shade in shades.items() if shade is not UNMEASURED}
    if len(measured) < SPARSE * count * count:
        return _dots(measured)
    parts: dict[str, list[str]] = {}
    for row in range(count):
        column = 0
        while column < count:
            shade = shades.get((row, column))
            begin = column
            while column < count and shades.get((row, column)) == shade:
                column += 1
            if shade is not None:
                wide = (column - begin) * CELL
                parts.setdefault(shade.css, []).append(f"M{begin * CELL} {row * CELL}h{wide}v{CELL}h-{wide}z")
    return [{"css": css, "d": "".join(pieces)} for css, pieces in sorted(parts.items())]


def _dots(shades: Mapping[tuple[int, int], Shade]) -> list[dict[str, str]]:
    """Return sparse cells at three times their width and height. Bad cells are drawn on top."""
    parts: dict[str, list[str]] = {}
    for (row, column), shade in shades.items():
        x, y, wide = (column - 1) * CELL, (row - 1) * CELL, 3 * CELL
        parts.setdefault(shade.css, []).append(f"M{x} {y}h{wide}v{wide}h-{wide}z")
    order = [name for name in COLORS if name in parts]
    return [{"css": css, "d": "".join(parts[css])} for css in order]


def _culprits(shades: Mapping[tuple[int, int], Shade], count: int, axis: int) -> list[int]:
    """Return the nodes whose row (axis 0) or column (axis 1) is mostly bad by the threshold of the findings."""
    all_, bad = [0] * count, [0] * count
    for pair, shade in shades.items():
        all_[pair[axis]] += shade is not UNMEASURED
        bad[pair[axis]] += shade.bad
    return [index for index in range(count) if bad[index] and bad[index] >= MOST * all_[index]]


def _labels(nodes: Sequence[str], culprits: Sequence[int], size: float) -> list[dict[str, Any]]:
    """Return as many names as fit. The names of nodes with a bad row or column come first."""
    apart = max(math.ceil(size * 1.15 / CELL), math.ceil(len(nodes) / LABELS))
    placed: list[int] = []
    for index in (*culprits, *range(0, len(nodes), apart)):
        if all(abs(index - other) >= math.ceil(size * 1.15 / CELL) for other in placed):
            placed.append(index)
    return [
        {
            "at": round((index + 0.5) * CELL, 1),
            "name": nodes[index] if len(nodes[index]) <= LONGEST else f"{nodes[index][: LONGEST - 1]}…",
            "bad": index in culprits,
        }
        for index in sorted(placed)
    ]


def _legend(shades: Mapping[tuple[int, int], Shade]) -> list[dict[str, Any]]:
    counts: dict[Shade, int] = {}
    for shade in shades.values():
        counts[shade] = counts.get(shade, 0) + 1
    return [
        {"css": shade.css, "label": shade.label, "count": counts[shade]}
        for shade in sorted(counts, key=lambda shade: COLORS.index(shade.css))
    ]


def _hint(title: str, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Return a sentence that describes the bad rows and columns."""
    both = [name for name in rows if name in columns]
    parts = [f"{name} in both directions" for name in both[:3]]
    parts += [f"traffic from {name}" for name in rows if name not in both][:3]
    parts += [f"traffic to {name}" for name in columns if name not in both][:3]
    return f"{title}: {', '.join(parts)}" if parts else ""


def _outcome(link: Mapping[str, Any]) -> tuple[str, str, str]:
    outcome = link.get("outcome")
    return OUTCOMES["not_tried"] if outcome is None else OUTCOMES.get(outcome, ("bad3", str(outcome), "?"))


def _ports(link: Mapping[str, Any]) -> str:
    """Group the ports by result: "29500 ok; 40001, 40002 dropped"."""
    groups: dict[str, list[str]] = {}
    for port, outcome in (link.get("ports") or {}).items():
        groups.setdefault(str(outcome), []).append(str(port))
    return "; ".join(f"{', '.join(ports)} {outcome.replace('_', ' ')}" for outcome, ports in groups.items())


def _tail(text: str) -> str:
    return f" ({text})" if text else ""
