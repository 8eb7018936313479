#!/usr/bin/env python3
"""Write docs/architecture.svg: the rooms of the code and the imports between them.

Run it with .venv-dev/bin/python after a change of rooms or imports. A test compares the file with the output of --show,
and fails on circular imports between rooms. An arrow points from a room to one that it imports. Arrows are left out if
a longer path implies them, if they point to `verdict`, which every room may import, and from the upper part of the
picture to the rooms below, which any module or plugin may import.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs/architecture.svg"
# Packages of the project, with their folders.
PACKAGES = {
    "muster": "plugins/module_utils/muster",
    "muster_node": "plugins/module_utils/muster_node",
    "muster_controller": "plugins/plugin_utils/muster_controller",
}
EVERYWHERE = "muster.verdict"

Graph = dict[str, set[str]]


def room_of(module: str) -> str:
    """Return the room of a module: the first two parts of its name, or the folder of an Ansible module or plugin."""
    package, *inner = module.split(".")
    return f"{package}.{inner[0]}" if package in PACKAGES and inner else package


def sources() -> dict[str, Path]:
    """Return the Python files of the project without tests, by import name."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = ".".join([package, *path.relative_to(ROOT / folder).with_suffix("").parts])
            found[name.removesuffix(".__init__")] = path
    for folder, name in (("library", "library"), ("plugins/action", "action"), ("plugins/callback", "callback")):
        for path in sorted((ROOT / folder).glob("*.py")):
            found[f"{name}.{path.stem}"] = path
    return found


def imports() -> Graph:
    """Return the project modules that each module imports."""
    modules = sources()
    graph: Graph = {name: set() for name in modules}
    for name, path in modules.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        for statement in ast.walk(ast.parse(path.read_text())):
            if not isinstance(statement, ast.ImportFrom):
                continue
            start = ".".join(package[: len(package) - statement.level + 1]) if statement.level else ""
            source = ".".join(part for part in (start, statement.module or "") if part)
            source = source.removeprefix("ansible.module_utils.")
            for alias in statement.names:
                inner = f"{source}.{alias.name}"
                graph[name] |= {inner} & modules.keys() or {source} & modules.keys()
    return graph


def rooms(graph: Graph) -> Graph:
    """Return the rooms that each room imports, without the room itself."""
    found: Graph = defaultdict(set)
    for name, targets in graph.items():
        found[room_of(name)] |= {room_of(target) for target in targets}
    return {room: targets - {room} for room, targets in found.items() if room not in PACKAGES}


def layers(graph: Graph) -> dict[str, int]:
    """Return the longest path of arrows below each room. Raises ValueError for circular imports between rooms."""
    depth: dict[str, int] = {}

    def visit(room: str, way: tuple[str, ...]) -> int:
        if room in way:
            raise ValueError(f"circular imports: {' -> '.join((*way[way.index(room) :], room))}")
        if room not in depth:
            depth[room] = 1 + max((visit(each, (*way, room)) for each in graph.get(room, ())), default=-1)
        return depth[room]

    for room in graph:
        visit(room, ())
    return depth


def reduced(graph: Graph) -> Graph:
    """Return the graph without arrows that are implied by a longer path."""

    def reach(room: str) -> set[str]:
        return {far for near in graph.get(room, ()) for far in ({near} | reach(near))}

    return {
        room: {each for each in targets if not any(each in reach(other) for other in targets - {each})}
        for room, targets in graph.items()
    }


# --- The picture ---

WIDTH, BOX, HIGH, GAP, BETWEEN = 1320, 128, 36, 16, 34
MOST = 9  # boxes in a row
BANDS = (
    ("muster_controller: coordinates nodes", "muster_controller.", "used by plugins, only on the controller"),
    ("muster: decisions without input or output", "muster.", "every room may import verdict, which imports nothing"),
    ("muster_node: inspects and changes a node", "muster_node.", "standard library only, Python 3.10 and newer"),
)
MARKER = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" style="fill:#7d8998;stroke:none"/></marker></defs>'
)
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2430 }
.title { font-weight: 600; font-size: 14px } .note { fill: #56606e; font-size: 12px }
.band { fill: #f5f7fa; stroke: #d5dbe3 } .box { fill: #ffffff; stroke: #6b7788 }
path { fill: none; stroke: #7d8998; stroke-width: 1.2 }
"""


@dataclass(frozen=True)
class Box:
    """A room in the picture; x and y are its upper left corner."""

    name: str
    x: float
    y: float

    @property
    def middle(self) -> float:
        return self.x + BOX / 2


def _row(names: list[str], y: float) -> list[Box]:
    left = (WIDTH - len(names) * BOX - (len(names) - 1) * GAP) / 2
    return [Box(name, left + number * (BOX + GAP), y) for number, name in enumerate(names)]


def _ordered(names: list[str], above: list[Box], graph: Graph) -> list[str]:
    """Return the names, each room as close as possible to the rooms above that import it."""
    place = {box.name: box.x for box in above}

    def wanted(name: str) -> float:
        users = [place[user] for user in place if name in graph.get(user, ())]
        return sum(users) / len(users) if users else WIDTH / 2

    return sorted(names, key=lambda name: (wanted(name), name))


def _arrow(start: Box, end: Box) -> str:
    x1, y1, x2, y2 = start.middle, start.y + HIGH, end.middle, end.y - 3
    bend = (y2 - y1) / 2
    curve = f"M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"
    return f'<path d="{curve}" marker-end="url(#a)"/>'


def _drawn(box: Box) -> str:
    label = escape(box.name.rpartition(".")[2])
    return (
        f'<rect class="box" x="{box.x:.0f}" y="{box.y:.0f}" width="{BOX}" height="{HIGH}" rx="6"/>'
        f'<text x="{box.middle:.0f}" y="{box.y + 23:.0f}" text-anchor="middle">{label}</text>'
    )


def _band(title: str, note: str, y: float, height: float) -> str:
    return (
        f'<rect class="band" x="10" y="{y:.0f}" width="{WIDTH - 20}" height="{height:.0f}" rx="10"/>'
        f'<text class="title" x="24" y="{y + 22:.0f}">{escape(title)}</text>'
        f'<text class="note" x="{WIDTH - 24}" y="{y + 22:.0f}" text-anchor="end">{escape(note)}</text>'
    )


def _inside(prefix: str, graph: Graph, top: float) -> tuple[list[Box], float]:
    """Return the boxes of one band, the highest layer first, and their lower end."""
    own = _within(prefix, graph)
    depth = layers(own)
    boxes: list[Box] = []
    y = top
    for layer in sorted(set(depth.values()), reverse=True):
        names = _ordered([room for room in own if depth[room] == layer and room != EVERYWHERE], boxes, own)
        for start in range(0, len(names), MOST):
            boxes += _row(names[start : start + MOST], y)
            y += HIGH + BETWEEN
    if EVERYWHERE in own:
        boxes += _row([EVERYWHERE], y)
        y += HIGH + BETWEEN
    return boxes, y - BETWEEN


def _within(prefix: str, graph: Graph) -> Graph:
    """Return the part of the graph that a band shows."""
    rooms_of_it = {room for room in graph if room.startswith(prefix)}
    return {room: (graph[room] & rooms_of_it) - {EVERYWHERE} for room in sorted(rooms_of_it)}


def _upper_part() -> list[str]:
    """Draw playbooks, roles, modules and plugins, which Ansible loads by name."""
    rows = (["playbooks"], ["roles"], ["library", "action", "callback"])
    boxes = [box for number, names in enumerate(rows) for box in _row(names, 44 + number * (HIGH + BETWEEN))]
    place = {box.name: box for box in boxes}
    ways = [("playbooks", "roles"), ("roles", "library"), ("roles", "action")]
    note = "playbooks run roles, roles contain data and simple tasks; modules run on nodes, plugins on the controller"
    band = _band("loaded by Ansible", note, 10, boxes[-1].y + HIGH + 4)
    return [band, *(_arrow(place[start], place[end]) for start, end in ways), *map(_drawn, boxes)]


def picture() -> str:
    """Return the text of the file. Raises ValueError for circular imports between rooms."""
    graph = rooms(imports())
    layers(graph)
    parts = _upper_part()
    top = 44.0 + 3 * (HIGH + BETWEEN)
    for title, prefix, note in BANDS:
        boxes, end = _inside(prefix, graph, top + 34)
        place = {box.name: box for box in boxes}
        shown = reduced(_within(prefix, graph))
        parts.append(_band(title, note, top, end - top + 14))
        parts += [_arrow(place[room], place[each]) for room in sorted(shown) for each in sorted(shown[room])]
        parts += [_drawn(box) for box in boxes]
        top = end + 28
    size = f'width="{WIDTH}" height="{top:.0f}"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" {size}>',
            f"<style>{STYLE}</style>",
            MARKER,
            f'<rect {size} fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        )
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(picture())
    else:
        TARGET.write_text(picture())
