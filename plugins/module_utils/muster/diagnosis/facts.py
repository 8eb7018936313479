"""Questions about the shapes in evidence.py by path: record.unit.pids_refused, end.disks.*.free, rank.state.

A path begins with record (a node's newest record), start, end, snapshot (all recorded for one node) or rank. The test
of a question defines when the answer is yes: is, contains, matches, above, below, or grew, which compares a node's end
with its start.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, get_args, get_origin, is_typeddict

from ..verdict.reading import hints, options
from . import evidence
from .model import no, not_looked, yes
from .questions import shots_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .case import LaunchCase
    from .model import CauseAnswer, CausePlace

NUMBER = (int, float)
TESTS: dict[str, Any] = {
    "is": (str, int, float, bool),
    "contains": str,
    "matches": str,
    "above": NUMBER,
    "below": NUMBER,
    "grew": NUMBER,
}
ROOTS: dict[str, type] = {
    "record": evidence.NodeRecord,
    "start": evidence.NodeRecord,
    "end": evidence.NodeRecord,
    "snapshot": evidence.Snapshot,
    "rank": evidence.RankShot,
}
ALL = "*"


def named(kind: Any) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = {str: "a text", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return " or ".join(dict.fromkeys(names[one] for one in kinds))


# ---------------------------------------------------------------- validation


def problem_of(path: str, one: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (problem, fix) if the definition of a question about a fact is invalid; None if it is valid."""
    tests = [name for name in TESTS if name in one]
    if len(tests) != 1:
        return (f"{' and '.join(tests) or 'no test'} set", f"Set exactly one of {', '.join(TESTS)}")
    if wrong := pattern_problem(one):
        return wrong
    root, *parts = path.split(".")
    if root not in ROOTS:
        return (f"the fact begins with the unknown part {root}{near(root, ROOTS)}", f"Use one of {', '.join(ROOTS)}")
    if "grew" in one and root != "record":
        return ("grew requires a fact that begins with record", "Begin the fact with record")
    kind: Any = ROOTS[root]
    for part in parts:
        kind = next((each for each in options(kind) if each is not type(None)), kind)
        if is_typeddict(kind):
            known = hints(kind)
            if part not in known:
                return (f"the fact has the unknown part {part}{near(part, known)}", f"Use one of {', '.join(known)}")
            kind = known[part]
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
            if not has_parts(kind):
                return None  # the rest is the key: keys of counters contain dots
        elif get_origin(kind) is list:
            if part != ALL and not part.isdigit():
                return (f"{part} is not a valid list index", "Use a number, 0 or greater, or * for all entries")
            kind = get_args(kind)[0]
        else:
            return (f"the fact continues with {part} after a value that has no parts", "Remove this part")
    return None


def has_parts(kind: Any) -> bool:
    return any(is_typeddict(one) or get_origin(one) in (dict, list) for one in options(kind))


def pattern_problem(one: Mapping[str, Any]) -> tuple[str, str] | None:
    try:
        re.compile(one.get("matches", ""))
    except re.error as exc:
        return (f"matches is not a valid regular expression ({exc})", "Correct it")
    return None


def near(word: str, names: Any) -> str:
    meant = difflib.get_close_matches(word, list(names), 1)
    return f" (did you mean {meant[0]}?)" if meant else ""


# ---------------------------------------------------------------- evaluation


def asks(path: str, one: Mapping[str, Any]) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    root, _, rest = path.partition(".")
    parts = rest.split(".") if rest else []
    test = next(name for name in TESTS if name in one)
    wanted = one[test]

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        if test == "grew":
            before, after = (numbers(values(record, parts)) for record in case.both(place.node) or (None, None))
            if not before or not after:
                return not_looked(case.why_not(place.node, parts[0]))
            grown = sum(after) - sum(before)
            return yes(f"{rest} grew by {grown:g}", f"records of {place.node}") if grown >= wanted else no()
        found = list(values(seen(case, root, place), parts))
        if not found:
            return not_looked(case.why_not(place.node, parts[0] if parts else root))
        for value in found:
            if holds(test, value, wanted):
                return yes(f"{rest} is {value}"[:200], f"{root} of {place.node or case.node_of(place.rank or 0)}")
        return no(f"{rest} is {found[0]}"[:200])

    return look


def seen(case: LaunchCase, root: str, place: CausePlace) -> Any:
    if root == "rank":
        return next(iter(shots_at(case, place)), None)
    if root == "snapshot":
        return case.seen["snapshots"].get(place.node)
    if root == "record":
        return case.record(place.node)
    return (case.seen["start"] if root == "start" else case.seen["end"]).get(place.node)


def values(found: Any, parts: list[str]) -> Iterator[Any]:
    """Yield the values at a path. If a part of the path was not recorded, there are none."""
    if found is None:
        return
    if not parts:
        yield found
    elif isinstance(found, list):
        chosen = found if parts[0] == ALL else found[int(parts[0]) : int(parts[0]) + 1]
        for one in chosen:
            yield from values(one, parts[1:])
    elif isinstance(found, dict):
        # A key may contain dots, such as that of a counter or a host name.
        for length in range(len(parts), 0, -1):
            if ".".join(parts[:length]) in found:
                yield from values(found[".".join(parts[:length])], parts[length:])
                return


def numbers(found: Iterator[Any]) -> list[float]:
    return [float(value) for value in found if isinstance(value, NUMBER) and not isinstance(value, bool)]


def holds(test: str, value: Any, wanted: Any) -> bool:
    if test == "is":
        return bool(value == wanted)
    if test == "contains":
        return wanted in value if isinstance(value, (str, list, dict)) else False
    if test == "matches":
        return re.search(wanted, str(value)) is not None
    if not isinstance(value, NUMBER):
        return False
    return bool(value > wanted if test == "above" else value < wanted)
