"""Compare the data of a launch (launch_data) on all participating nodes, and report differences as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from ..verdict.check import Check
from ..verdict.majority import vote
from ..verdict.words import few, gigabytes, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import Finding

MOST_TEXT = 600
MOST_NAMES = 1000


class DataFacts(TypedDict):
    """A node's report on a path. kind: folder, file, or "" if `error` is set. bytes, count: total size and number of
    files.

    digest: digest of the names and sizes in a folder, or of the content of a file; "" if unknown. names: [[name, size],
    ...] for a small folder. cut: whether the count is incomplete.
    """

    path: str
    kind: str
    count: int
    bytes: int
    digest: str
    names: list[list[Any]]
    cut: bool
    error: str


DATA = Check(
    "launch.data",
    seen="sandbox",
    reads="each path in launch_data on every participating node, as the launch's user: names and sizes of all files"
    " in a folder, the content of a file up to 64 MB, the size of a larger file",
    fires="a path is missing, not readable, or different from the other nodes (fail); the comparison takes longer than"
    " 12 s (warn)",
    fix="Copy the same data to all nodes, or remove the path from launch_data",
)
MANIFEST = "In launch_data, replace the folder with a file that contains its checksums (SHA256SUMS)"


def problems_of(paths: Sequence[Any]) -> list[str]:
    """Return the problems of the option launch_data."""
    return [
        f"launch_data contains {path!r}, which is not an absolute path."
        for path in paths
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path
    ]


def judge(paths: Sequence[str], seen: Mapping[str, Any], user: str) -> list[Finding]:
    """Return the findings. seen: for each node, its unvalidated reports on all paths, in the order of the paths."""
    found: list[Finding] = []
    for number, path in enumerate(paths):
        reports = {node: shaped(path, given, number) for node, given in seen.items()}
        found += _of_one(path, reports, user)
    return found


def shaped(path: str, given: Any, number: int) -> DataFacts:
    """Return the valid part of a node's report on one path."""
    one = given[number] if isinstance(given, list) and len(given) > number else None
    one = one if isinstance(one, dict) and one.get("path") == path else {"error": "was not reported correctly"}
    count, size, names = (one.get(name) for name in ("count", "bytes", "names"))
    return {
        "path": path,
        "kind": _text(one.get("kind")),
        "count": count if isinstance(count, int) else 0,
        "bytes": size if isinstance(size, int) else 0,
        "digest": _text(one.get("digest")),
        "names": [
            entry
            for entry in (names if isinstance(names, list) else [])[:MOST_NAMES]
            if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], int)
        ],
        "cut": one.get("cut") is True,
        "error": _text(one.get("error")),
    }


def _of_one(path: str, reports: Mapping[str, DataFacts], user: str) -> list[Finding]:
    found = [
        DATA.fail(node, f"{path} {one['error']} (as {user})")
        for node, one in reports.items()
        if one["error"] and not one["cut"]
    ]
    late = [node for node, one in reports.items() if not one["digest"] and (one["cut"] or not one["error"])]
    found += [DATA.warn(node, f"{path} could not be compared within the time limit", fix=MANIFEST) for node in late]
    known = {node: one for node, one in reports.items() if one["digest"]}
    result = vote({node: _key(one) for node, one in known.items()})
    if result.agree:
        return found
    # Without a majority, the others are compared with the first node, which is the head node.
    usual = next(one for one in known.values() if result.usual in {None, _key(one)})
    alike = [node for node, one in known.items() if _key(one) == _key(usual)]
    for node, one in known.items():
        if node in alike:
            continue
        found.append(
            DATA.fail(
                node,
                f"{path} differs from {few(alike)}: {_difference(one, usual)}",
                observed=_size(one),
                expected=_size(usual),
            )
        )
    return found


def _key(one: DataFacts) -> tuple[str, str, int, int]:
    return one["kind"], one["digest"], one["count"], one["bytes"]


def _difference(one: DataFacts, usual: DataFacts) -> str:
    """Describe the difference. The differing files are named if both folders have only a few files."""
    if one["kind"] != usual["kind"]:
        return f"a {one['kind']} on this node, but a {usual['kind']} on the others"
    if one["kind"] == "file":
        return "different content" if one["bytes"] == usual["bytes"] else f"{_size(one)} here; {_size(usual)} there"
    here, there = (dict(map(tuple, each["names"])) for each in (one, usual))
    if here and there:
        lacks = sorted(set(there) - set(here))
        more = sorted(set(here) - set(there))
        other = sorted(name for name in set(here) & set(there) if here[name] != there[name])
        parts = [("missing", lacks), ("additional", more), ("different size", other)]
        said = [f"{what} {few(names)}" for what, names in parts if names]
        if said:
            return "; ".join(said)
    if _size(one) != _size(usual):
        return f"{_size(one)} here; {_size(usual)} there"
    return "same number of files and total size, but different names or file sizes"


def _size(one: DataFacts) -> str:
    files = f"{plural(one['count'], 'file')}, " if one["kind"] == "folder" else ""
    return f"{files}{gigabytes(one['bytes'])}"


def _text(value: Any) -> str:
    return value[:MOST_TEXT] if isinstance(value, str) else ""
