"""Report existing conda, mamba and pixi environments on nodes, and the inventory line that makes one usable for
launches.

Values from nodes are untrusted. Only plain paths are put into lines that users copy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..pytorch.environments import existing, is_name
from ..verdict.check import Check
from ..verdict.majority import vote
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.finding import Finding
    from .facts import InspectedNode

DIFFERS = Check(
    "environment.existing.differs",
    seen="sandbox",
    reads="environments with a prefix in cluster_environments, compared between nodes",
    fires="an environment is missing on a node, or its Python or torch version differs from most nodes (warn); a launch"
    " requires the same environment on all nodes",
    fix="Update the environment with the tool that created it, or have Muster build it from a file",
)
PLAIN = re.compile(r"[\w./@+-]+", re.ASCII)
MOST_LINES = 12
NOT_THERE = "missing"


def judge(nodes: Sequence[InspectedNode]) -> Iterator[Finding]:
    """Compare the declared environments across nodes. nodes: the inspected nodes."""
    names = dict.fromkeys(name for node in nodes for name in _declared(node))
    for name in names:
        states = {node.name: _of(node, _declared(node)[name]) for node in nodes if name in _declared(node)}
        votes = vote(states)
        for odd, value in votes.odd:
            summary = f"environment {name} differs: {votes.spread()}"
            if votes.usual is not None:
                summary = f"environment {name}: {value}; on most nodes: {votes.usual}"
            yield DIFFERS.warn(odd, summary, observed=str(value), expected=str(votes.usual or ""))


def lines(nodes: Sequence[InspectedNode]) -> list[str]:
    """Return report lines about declared environments, and about environments that could be declared."""
    groups: dict[str, list[str]] = {}
    rest: dict[str, list[str]] = {}
    for node in nodes:
        if node.facts is None or "environments" not in node.facts:
            continue
        declared = {path: name for name, path in _declared(node).items()}
        taken = set(node.request.get("cluster_environments") or {})
        for one in node.facts["environments"]:
            path = one["path"]
            if not PLAIN.fullmatch(path):
                continue
            if path in declared:
                groups.setdefault(f"environment {declared[path]}, {path}: {_words(one)}", []).append(node.name)
            elif not one["torch"]:
                rest.setdefault(f"{path} ({one['made_by']})", []).append(node.name)
            else:
                groups.setdefault(f"{path}: {_words(one)}. {_to_use(one, taken, node)}", []).append(node.name)
    shown = [f"{few(names)}: {text}" for text, names in groups.items()]
    more = len(shown) - MOST_LINES
    shown = [*shown[:MOST_LINES], *([f"and {more} more, in inspect.json"] if more > 0 else [])]
    if rest:
        where = few(list(dict.fromkeys(name for names in rest.values() for name in names)))
        shown.append(f"{where}: without torch, {few(list(rest))}")
    return shown


def _declared(node: InspectedNode) -> dict[str, str]:
    """Return the prefix of each declared existing environment, by name."""
    found = {name: existing(entry) for name, entry in (node.request.get("cluster_environments") or {}).items()}
    return {name: path for name, path in found.items() if path}


def _of(node: InspectedNode, path: str) -> str | None:
    """Return a description of the environment on the node; None if the node was not checked."""
    if "environments" not in node.seen or "environments" in node.seen["skipped"]:
        return None
    return next((_words(one) for one in node.seen["environments"] if one["path"] == path), NOT_THERE)


def _words(one: Mapping[str, Any]) -> str:
    python = f"Python {one['python']}" if one["python"] else "without Python"
    return f"created by {one['made_by']}, {python}, {'torch ' + one['torch'] if one['torch'] else 'without torch'}"


def _to_use(one: Mapping[str, Any], taken: set[str], node: InspectedNode) -> str:
    if not one["usable"]:
        return f"{node.request['cluster_user']} cannot execute it"
    name = _name(one["path"], taken)
    return f"To use it for launches, add '{name}: {{prefix: {one['path']}}}' to cluster_environments"


def _name(path: str, taken: set[str]) -> str:
    """Return an unused name: that of the environment's folder, or else of its project folder, or else "existing"."""
    *above, own = path.lower().strip("/").split("/")
    project = [part for part in above if part not in ("envs", ".pixi", "opt", "srv", "home")][-1:]
    return next((name for name in (own, *project, "existing") if is_name(name) and name not in taken), "NAME")
