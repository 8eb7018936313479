"""Extract the differences from the result of an Ansible task, in the format of the drift record."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from ..verdict.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .model import Taken

MOST = 60  # sentences, names
MOST_TEXT = 500  # characters of each
MOST_SIDE = 20  # lines of a diff
MOST_COMPARED = 4000  # lines of each side


def says_something(result: Mapping[str, Any]) -> bool:
    # ansible-core 2.21 has no "failed" in an item of a loop, only an exception.
    return bool(result.get("changed") or result.get("failed", "exception" in result) or result.get("unreachable"))


def taken(node: str, role: str, task: str, result: Mapping[str, Any]) -> Taken:
    items = [one for one in result.get("results") or () if isinstance(one, dict) and says_something(one)]
    parts: list[Mapping[str, Any]] = [*items] or [result]
    return {
        "node": node,
        "role": role,
        "task": task,
        "changed": bool(result.get("changed")),
        "failed": bool(result.get("failed")),
        "unreachable": bool(result.get("unreachable")),
        "message": "\n".join(short(one.get("msg")) for one in parts if one.get("msg")),
        "sentences": [short(one) for part in parts for one in sentences(part)][:MOST],
        "packages": [short(one) for part in parts for one in _plan(part, "packages")][:MOST],
        "sysctl": [short(one) for part in parts for one in _plan(part, "sysctl")][:MOST],
        "sides": dict(side for part in parts for side in sides(part)),
    }


def sentences(result: Mapping[str, Any]) -> list[Any]:
    """Return the sentences that describe differences. Modules report them under different keys."""
    plan = result.get("plan")
    for place in (result, plan if isinstance(plan, dict) else {}):
        for name in ("differences", "reasons"):
            if isinstance(place.get(name), list) and place[name]:
                return list(place[name])
    return []


def _plan(result: Mapping[str, Any], name: str) -> list[Any]:
    plan = result.get("plan")
    found = plan.get(name) if isinstance(plan, dict) else None
    return found if isinstance(found, list) else []


def sides(result: Mapping[str, Any]) -> Iterator[tuple[str, list[list[str]]]]:
    """For each diff, yield the lines that only the present state has and the lines that only the planned state has."""
    found = result.get("diff")
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, dict):
            continue
        before, after = (str(one.get(side) or "").splitlines()[:MOST_COMPARED] for side in ("before", "after"))
        gone: list[str] = []
        new: list[str] = []
        for line in difflib.ndiff(before, after) if len(before) + len(after) < 800 else _plainly(before, after):
            (gone if line.startswith("- ") else new if line.startswith("+ ") else []).append(short(line[2:]))
        if gone or new:
            yield short(one.get("before_header") or one.get("after_header")), [gone[:MOST_SIDE], new[:MOST_SIDE]]


def _plainly(before: list[str], after: list[str]) -> Iterator[str]:
    """Compare long texts line by line. difflib.ndiff gives the same kind of output but is slow for long texts."""
    there, wanted = set(before), set(after)
    yield from (f"- {line}" for line in before if line not in wanted)
    yield from (f"+ {line}" for line in after if line not in there)


def short(text: Any) -> str:
    return printable(str(text or ""))[:MOST_TEXT]
