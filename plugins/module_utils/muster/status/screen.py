"""The status screen: lines of text of a limited width. Each line has a status that determines its colour."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from ..verdict.words import age, plural
from .judge import NOT_READY, QUARANTINED, READY, SILENT, TITLES, UNKNOWN
from .names import numbers, together

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .judge import ClusterStatus, NodeStatus
    from .seen import NodeHolder

EACH_UP_TO = 8  # nodes with separate lines; with more, equal nodes share a line
NARROW = 100  # columns; on a narrower screen the last column moves below the node
NAME_ROOM = 30  # letters of the first column
LABEL = 11
MOST_HOLDERS = 4  # named per node
MARKS = {READY: "ok", NOT_READY: "fail", UNKNOWN: "warn", QUARANTINED: "warn", SILENT: "fail"}
WORST = ("fail", "warn", "ok")
OF_VERDICTS = {"healthy": "ok", "degraded": "warn", "failed": "fail", "stopped": "fail", "unknown": "warn"}


class StatusLine(NamedTuple):
    """A line of the screen. mark: ok, warn or fail, or "" if the line has no status."""

    text: str
    mark: str = ""


class Cells(NamedTuple):
    """The table cells of a node, except its name and ranks."""

    state: str
    gpus: str
    more: str
    mark: str


def screen(status: ClusterStatus, width: int, height: int = 0) -> list[StatusLine]:
    """Return the lines of the screen. height: number of available lines; 0 for no limit."""
    foot = [*_foot(status, width)]
    head = [StatusLine(_head(status)[:width]), StatusLine("")]
    room = max(3, height - len(head) - len(foot) - 1) if height else 0
    return [*head, *_table(status, width, room), StatusLine(""), *foot]


def _head(status: ClusterStatus) -> str:
    gpus = sum(row.gpus for row in status.rows)
    counted = plural(gpus, "GPU") if gpus else "no GPUs"
    return f"{status.cluster}: {plural(len(status.rows), 'node')}, {counted}, {status.time}"


def _table(status: ClusterStatus, width: int, room: int) -> Iterator[StatusLine]:
    """Return the table of nodes. room: number of available lines. If the table needs more, the ready nodes are only
    counted."""
    groups = _groups(status.rows)
    several = any(len(rows) > 1 for _, rows in groups)
    cells = [(together([row.node.name for row in rows]), _ranks(rows), one) for one, rows in groups]
    titles = ("NODE", "RANKS", "STATE", "GPUS EACH" if several else "GPUS")
    texts = [titles, *((name[:NAME_ROOM], ranks, one.state, one.gpus) for name, ranks, one in cells)]
    columns = [max(map(len, column)) for column in zip(*texts, strict=True)]
    wide = width >= NARROW
    titled = "  ".join(f"{title:{column}}" for title, column in zip(titles, columns, strict=True))
    yield StatusLine((f"{titled}  USED BY / REASON" if wide else titled.rstrip())[:width])
    shown = [_lines(*one, columns, width) for one in cells]
    left = room - 2 if room and sum(map(len, shown)) >= room else 1 << 30
    out = 0
    fitting = set()
    # Nodes with problems take precedence over nodes without.
    for number in sorted(range(len(shown)), key=lambda number: WORST.index(shown[number][0].mark)):
        left -= len(shown[number])
        if left >= 0:
            fitting.add(number)
        else:
            out += len(groups[number][1])
    for number in sorted(fitting):
        yield from shown[number]
    if out:
        yield StatusLine(f"... and {plural(out, 'more node')} that do not fit on the screen"[:width])


def _lines(name: str, ranks: str, cells: Cells, columns: Sequence[int], width: int) -> list[StatusLine]:
    """Return the lines of a node. Text that does not fit into the columns is wrapped below."""
    names = textwrap.wrap(name, columns[0]) or [""]
    one = "  ".join(
        f"{text:{column}}" for text, column in zip((names[0], ranks, cells.state, cells.gpus), columns, strict=True)
    )
    if width < NARROW:
        below = textwrap.wrap(cells.more, width, initial_indent="    ", subsequent_indent="    ")
        return [StatusLine(text.rstrip()[:width], cells.mark) for text in (one, *names[1:], *below)]
    beside = textwrap.wrap(cells.more, max(20, width - len(one) - 2))
    pairs = zip_longest([one, *names[1:]], beside, fillvalue="")
    return [StatusLine(f"{left:{len(one)}}  {right}".rstrip(), cells.mark) for left, right in pairs]


def _groups(rows: Sequence[NodeStatus]) -> list[tuple[Cells, list[NodeStatus]]]:
    """Group nodes that have equal cells, if there are more than EACH_UP_TO nodes."""
    if len(rows) <= EACH_UP_TO:
        return [(_cells(row), [row]) for row in rows]
    found: dict[Cells, list[NodeStatus]] = defaultdict(list)
    for row in rows:
        found[_cells(row)].append(row)
    return [*found.items()]


def _ranks(rows: Sequence[NodeStatus]) -> str:
    return numbers(rank for row in rows for rank in row.node.ranks) or "-"


def _cells(row: NodeStatus) -> Cells:
    parts = [*row.why, *_held(row), *row.notes]
    mark = "warn" if row.notes and row.state == READY else MARKS[row.state]
    return Cells(row.state, _gpus(row), "; ".join(parts), mark)


def _gpus(row: NodeStatus) -> str:
    if not row.gpus:
        return "none"
    if row.seen is None or row.unknown == row.gpus:
        return f"? of {row.gpus} free"
    return f"{row.free} of {row.gpus} free" + (f", {row.unknown} ?" if row.unknown else "")


def _held(row: NodeStatus) -> Iterator[str]:
    """Describe the users of a node. GPU numbers are listed for a user who does not hold all GPUs."""
    for one in row.holders[:MOST_HOLDERS]:
        gpus = [number for number, who in row.held if who == one and number is not None]
        where = f" on GPU{'s' if len(gpus) > 1 else ''} {numbers(gpus)}" if gpus and len(gpus) < row.gpus else ""
        yield f"{describe(one)}{where}"
    if len(row.holders) > MOST_HOLDERS:
        yield f"and {len(row.holders) - MOST_HOLDERS} more"
    waiting = [one for one in (row.seen.launches if row.seen else ()) if one not in row.holders]
    for one in waiting[:MOST_HOLDERS]:
        yield f"{describe(one)}, not yet using this node" if not _blind(row) else describe(one)


def _blind(row: NodeStatus) -> bool:
    return bool(row.seen and row.seen.unknown)


def describe(one: NodeHolder) -> str:
    since = f" for {age(one.seconds)}" if one.seconds is not None else ""
    if one.launch_id:
        whose = f"{one.user}, user launch" if one.own and one.user else one.user or "?"
        return f"launch {one.launch_id} ({whose}){since}"
    if one.pid is None:
        return one.what if one.what not in ("", "process", "notebook") else "a process that is not visible"
    name = "" if one.what == "notebook" or not one.name else f" {one.name}"
    return f"{one.what}{name} of {one.user or '?'} (PID {one.pid}){since}"


def _foot(status: ClusterStatus, width: int) -> Iterator[StatusLine]:
    common = ", ".join(f"{TITLES[layer]} {value}" for layer, value in status.common.items())
    yield from _labelled("versions", common or "unknown", "" if common else "warn", width)
    for one in status.differ:
        yield from _labelled("", one, "warn", width)
    for label, said in (("smoke", status.smoke), ("health", status.health), ("drift", status.drift)):
        yield from _labelled(label, said.whole, OF_VERDICTS.get(said.status, ""), width)
    if status.changed:
        yield from _labelled("", f"since the accepted state: {status.changed}", "warn", width)


def _labelled(label: str, text: str, mark: str, width: int) -> Iterator[StatusLine]:
    for number, line in enumerate(textwrap.wrap(text, max(20, width - LABEL)) or [""]):
        yield StatusLine(f"{label if not number else '':{LABEL}}{line}", mark)
