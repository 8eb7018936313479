"""Extract the differences from the result of an Ansible task, in the format of the drift record."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from ..verdict.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .model import Taken

MOST = 60  # sentences, names
MOST_TEXT = 500  # characters of each
MOST_SIDE = 20  # lines of a diff
MOST_COMPARED = 4000  # lines of each side
LONGEST = 4000  # characters of a line that are compared


def says_something(result: Mapping[str, Any]) -> bool:
    # ansible-core 2.21 has no "failed" in an item of a loop, only an exception.
    return bool(result.get("changed") or result.get("failed", "exception" in result) or result.get("unreachable"))


def taken(node: str, role: str, task: str, result: Mapping[str, Any]) -> Taken:
    given = result.get("results")
    items = given if isinstance(given, list) else []
    said = [one for one in items if isinstance(one, dict) and says_something(one)][:MOST]
    parts: list[Mapping[str, Any]] = [*said] or [result]
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
        "sides": dict(islice((side for part in parts for side in sides(part)), MOST)),
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
    """For each diff, yield the lines that only the present state has and the lines that only the planned state has.

    Nodes send the texts: comparing takes linear time (difflib needs minutes for 30 kB of hostile text).
    """
    found = result.get("diff")
    for one in found[:MOST] if isinstance(found, list) else [found]:
        if not isinstance(one, dict):
            continue
        before, after = (
            [line[:LONGEST] for line in str(one.get(side) or "").splitlines()[:MOST_COMPARED]]
            for side in ("before", "after")
        )
        gone, new = only_in(before, after), only_in(after, before)
        if gone or new:
            yield short(one.get("before_header") or one.get("after_header")), [gone, new]


def only_in(lines: list[str], others: Iterable[str]) -> list[str]:
    known = set(others)
    return [short(line) for line in islice((line for line in lines if line not in known), MOST_SIDE)]


def short(text: Any) -> str:
    return printable(str(text or "")[:MOST_TEXT])[:MOST_TEXT]
