"""Describe the nodes that a task waits for, and what these nodes do, from observations of downloads, pip and apt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ..verdict.reading import Count, UnusableError, Word, read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+]*", re.ASCII)
GIGABYTE, MEGABYTE = 10**9, 10**6
BAR = 20  # characters
MOST_NODES = 5  # with their names or activities


class FileDownload(TypedDict):
    """A file that pip or apt is writing. total: its size in pip's log; 0 if unknown."""

    name: Word
    size: Count
    total: Count


class AptActivity(TypedDict):
    """The packages of the running installation. now: the package whose configuration began last."""

    packages: Count
    unpacked: Count
    configured: Count
    now: Word


class ObservedActivity(TypedDict):
    """The answer of the node program activity. installed: packages that a running `pip install` has installed."""

    downloads: list[FileDownload]
    apt: AptActivity | None
    installed: Count | None


class NodeActivity(NamedTuple):
    """part: the completed fraction of the work, or None."""

    text: str
    part: float | None = None


def node_activity(given: Any, sizes: Mapping[str, int], wheels: int) -> NodeActivity | None:
    """Return what the node does, or None if nothing is known. sizes: known sizes of files. wheels: number of packages
    that pip installs; 0 if unknown."""
    try:
        seen, _ = read(ObservedActivity, given)
    except UnusableError:
        return None
    if seen["downloads"]:
        return downloading(max(seen["downloads"], key=lambda one: (one["total"], one["size"])), sizes)
    if seen["apt"] and seen["apt"]["packages"]:
        return with_apt(seen["apt"])
    if seen["installed"] is not None:
        return counted("pip: installing", seen["installed"], wheels)
    return None


def downloading(file: FileDownload, sizes: Mapping[str, int]) -> NodeActivity:
    size, total = file["size"], sizes.get(file["name"], file["total"])
    found = NAME.match(file["name"])
    what = f"downloading {found[0] if found else 'a package'}"
    if size > total:  # the total is unknown
        return NodeActivity(f"{what}, {amount(size, size)}")
    return NodeActivity(f"{what}, {amount(size, total, unit=False)} of {amount(total, total)}", size / max(total, 1))


def amount(size: int, whole: int, *, unit: bool = True) -> str:
    """Return a number of bytes in the unit that fits the whole."""
    number, name = (f"{size / GIGABYTE:.1f}", " GB") if whole >= GIGABYTE else (f"{size / MEGABYTE:.0f}", " MB")
    return number + name * unit


def with_apt(seen: AptActivity) -> NodeActivity:
    if seen["unpacked"] < seen["packages"]:
        return counted("apt: unpacking", seen["unpacked"], seen["packages"])
    found = counted("apt: configuring", seen["configured"], seen["packages"])
    now = NAME.match(seen["now"])
    return found._replace(text=f"{found.text} ({seen['now']})") if now else found


def counted(what: str, done: int, whole: int) -> NodeActivity:
    if not whole:
        return NodeActivity(f"{what} packages ({done} done)")
    done = min(done, whole)
    return NodeActivity(f"{what} {done} of {whole} packages", done / whole)


def waiting_line(seconds: float, nodes: Sequence[str], activities: Mapping[str, NodeActivity]) -> str:
    """Return a line for outputs that are not a terminal. nodes: nodes that have not finished; empty for a task of the
    controller."""
    does = [f"{node}: {one.text}" for node, one in activities.items()]
    more = f" ({'; '.join(does[:MOST_NODES])})" if does else ""
    return f"{subject(nodes)}: {clock(seconds)}{more}"


def waiting_screen(
    seconds: float, nodes: Sequence[str], activities: Mapping[str, NodeActivity], width: int
) -> list[str]:
    """Return the lines for a terminal, which are redrawn."""
    does = list(activities.items())[:MOST_NODES]
    wide = max((len(node) for node, _ in does), default=0)
    bars = [f"{node:{wide}} {bar(one.part)} {one.text}" for node, one in does]
    return [f"  {line}"[: width - 1] for line in (*bars, f"{subject(nodes)}: {clock(seconds)}")]


def subject(nodes: Sequence[str]) -> str:
    if not nodes:
        return "running"
    more = len(nodes) - MOST_NODES
    return f"waiting for {', '.join(nodes[:MOST_NODES])}" + (f" and {more} more" if more > 0 else "")


def bar(part: float | None) -> str:
    if part is None:
        return " " * (BAR + 2)
    full = round(BAR * part)
    return f"[{'#' * full}{'.' * (BAR - full)}]"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
