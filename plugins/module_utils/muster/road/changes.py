"""The changes that the steps would make, from the results of their tasks in check mode. Pure functions.

A task reports them under `changes`: for each kind of KINDS, the names; under `unknown`, sentences about changes that
check mode cannot predict; under `download`, the bytes of the packages. Its diffs name the files.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any, TypedDict

from ..verdict.foreign import quote
from ..verdict.printable import printable
from ..verdict.words import few, gigabytes, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# The kinds in the order of the table.
KINDS = ("package", "hold", "file", "unit", "account", "sysctl", "firewall", "sshd", "mtu", "environment", "reboot")
OTHER = "other"  # the task reports a change without naming it
MOST, LONGEST = 500, 300  # names of one task, characters of a name
LARGEST = 2**50  # bytes of a download that a node can report
RATE = 100  # Mbit/s, assumed for the duration of downloads
# Measured on four systems: docs/dev/proof.md, On which systems.
INSTALLATION = "packages and an environment took 4 to 8 minutes on nodes with two cores and no GPU, 3 GB included"
WIDTH = 118


class Change(TypedDict):
    """One change. purpose: what the role is for. undo: how to revert the change."""

    node: str
    role: str
    kind: str
    name: str
    purpose: str
    undo: str


class PlannedChanges(TypedDict):
    """The changes of a run. unknown: for each node, sentences about changes that are not known yet. download: for each
    node, the bytes of the packages. stopped: the nodes that failed, and the task; their later changes are not known."""

    rows: list[Change]
    unknown: dict[str, list[str]]
    download: dict[str, int]
    stopped: dict[str, str]


def planned_changes() -> PlannedChanges:
    return {"rows": [], "unknown": {}, "download": {}, "stopped": {}}


def collect(
    found: PlannedChanges, node: str, role: str, task: str, result: Mapping[str, Any], about: Mapping[str, str]
) -> None:
    """Add the changes of one task. about: the role's purpose under "", and the texts of undo_of by their keys."""
    if result.get("failed") or not result.get("changed"):
        return
    named = list(dict.fromkeys(pair for part in _parts(result) for pair in _named(part)))
    for kind, name in named or [(OTHER, task)]:
        one: Change = {
            "node": node,
            "role": role,
            "kind": kind,
            "name": printable(name)[:LONGEST],
            "purpose": about.get("", ""),
            "undo": undo_of(role, kind, about),
        }
        if one not in found["rows"]:
            found["rows"].append(one)
    for part in _parts(result):
        said = _changes(part)
        texts = [printable(text)[:LONGEST] for text in _texts(said.get("unknown"))]
        if texts:
            found["unknown"].setdefault(node, []).extend(texts)
        size = said.get("download")
        if isinstance(size, int) and 0 <= size <= LARGEST:
            found["download"][node] = found["download"].get(node, 0) + size


def _parts(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the result, the results of a loop, and those of named environments."""
    named = result.get("named")
    items = result.get("results")
    parts = [result, *(items if isinstance(items, list) else []), *(named.values() if isinstance(named, dict) else [])]
    yield from (part for part in parts if isinstance(part, dict))


def _changes(part: Mapping[str, Any]) -> Mapping[str, Any]:
    said = part.get("changes")
    return said if isinstance(said, dict) else {}


def _texts(given: Any) -> list[str]:
    """Return the list of a result. A node may have written anything."""
    return [str(one) for one in given[:MOST]] if isinstance(given, list) else []


def _named(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    said = {kind: _texts(_changes(part).get(kind)) for kind in KINDS}
    yield from ((kind, name) for kind, names in said.items() for name in names)
    diffs = part.get("diff")
    for one in diffs[:MOST] if isinstance(diffs, list) else [diffs]:
        if not isinstance(one, dict) or one.get("before") == one.get("after"):
            continue
        path = str(one.get("after_header") or "")
        if path.startswith(("/", "~")) and not any(path in names for names in said.values()):
            yield "file", path


def undo_of(role: str, kind: str, texts: Mapping[str, str]) -> str:
    """Return the most specific text: of the role's kind, of the role, of the kind, or the default."""
    keys = (f"{role}.{kind}", role, kind, "default")
    return next((texts[key] for key in keys if key in texts), "")


# ---------------------------------------------------------------- text


def table(found: PlannedChanges) -> list[str]:
    """Return the lines of the table; none without changes."""
    changes = found["rows"]
    if not changes:
        return []
    lines = ["Changes that this run would make without --check:"]
    for role in dict.fromkeys(one["role"] for one in changes):
        of_role = [one for one in changes if one["role"] == role]
        lines.append(f"  {role}: {of_role[0]['purpose']}")
        undo: dict[str, list[str]] = {}
        for kind in (*KINDS, OTHER):
            of_kind = [one for one in of_role if one["kind"] == kind]
            for nodes, names in _by_nodes(of_kind):
                lines += _wrapped(
                    f"    {kind:<12} {few(nodes):<14} ", ("; " if kind == "firewall" else ", ").join(names)
                )
            if of_kind:
                undo.setdefault(of_kind[0]["undo"], []).append(kind)
        for text, kinds in undo.items():
            lines += _wrapped("    to undo      ", f"{', '.join(kinds)}: {text}" if len(undo) > 1 else text)
    return [*lines, *_totals(found), *_duration(found), *_notes(found)]


def _by_nodes(changes: Iterable[Change]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield groups of nodes with the names that all of them have."""
    nodes: dict[str, list[str]] = {}
    for one in changes:
        nodes.setdefault(one["name"], []).append(one["node"])
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, where in nodes.items():
        groups.setdefault(tuple(where), []).append(name)
    yield from ((list(where), names) for where, names in groups.items())


def _wrapped(begin: str, text: str) -> list[str]:
    width = max(WIDTH - len(begin), 40)
    first, *rest = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"{begin}{first}", *(f"{'':{len(begin)}}{line}" for line in rest)]


def _totals(found: PlannedChanges) -> Iterator[str]:
    """Yield the numbers of changes, once for nodes with the same numbers."""
    every = list(dict.fromkeys(one["node"] for one in found["rows"]))
    same: dict[str, list[str]] = {}
    for node in every:
        same.setdefault(_counted(found, [node]), []).append(node)
    yield from (f"  {few(nodes)}: {'each ' if len(nodes) > 1 else ''}{text}" for text, nodes in same.items())
    if len(every) > 1:
        yield f"  in total: {_counted(found, every)} on {plural(len(every), 'node')}"


def _counted(found: PlannedChanges, nodes: Sequence[str]) -> str:
    counts = Counter(one["kind"] for one in found["rows"] if one["node"] in nodes)
    words = {"hold": "held package", "firewall": "firewall line", "sshd": "sshd file", "other": "other change"}
    texts = [plural(counts[kind], words.get(kind, kind)) for kind in (*KINDS, OTHER) if counts[kind]]
    size = sum(found["download"].get(node, 0) for node in nodes)
    return ", ".join([*texts, *([f"{gigabytes(size)} of packages to download"] if size else [])])


def _duration(found: PlannedChanges) -> Iterator[str]:
    """Yield the duration: the download of packages by the node with the most, a measured installation, and what is not
    known."""
    most = max(found["download"].values(), default=0)
    minutes = round(most * 8 / (RATE * 60e6))
    kinds = {one["kind"] for one in found["rows"]}
    slow = {"package": "installing packages", "reboot": "rebooting"}
    parts = []
    if most:
        parts.append(f"packages download in {plural(minutes, 'minute') if minutes else 'seconds'} at {RATE} Mbit/s")
    if "environment" in kinds:
        parts.append(INSTALLATION)
        del slow["package"]
    if there := [text for kind, text in slow.items() if kind in kinds]:
        parts.append(f"not known: {', '.join(there)}")
    if parts:
        yield from _wrapped("  duration: ", "; ".join(parts))


def _notes(found: PlannedChanges) -> Iterator[str]:
    where: dict[str, list[str]] = {}
    for node, texts in sorted(found["unknown"].items()):
        for text in dict.fromkeys(texts):
            where.setdefault(text, []).append(node)
    for text, nodes in where.items():
        yield from _wrapped(f"  {few(nodes)} reported: ", quote(text))
    yield from (f"  {node}: incomplete, because the node stopped at '{at}'" for node, at in found["stopped"].items())
