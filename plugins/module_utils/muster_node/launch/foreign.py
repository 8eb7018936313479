"""Validate data that the training user wrote or could have written. Only data of limited size, in the shapes that the
launch itself writes, is accepted."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

ENDINGS = ("asked", "limit")
ENDING = ("reason", "until", "seconds")
DEPTH = 20  # of nested lists and objects
MOST_TEXT = 2000  # characters of a reason or an error
MOST_NOTES = 20
MOST_RANKS = 1024  # of one node
MOST_NUMBER = 1 << 31
NUMBER = re.compile(r"0|[1-9]\d{0,6}", re.ASCII)


def number(text: str) -> int | None:
    """Parse a rank or local rank in the launcher's notation. Return None for other text, even if int() accepts it."""
    return int(text) if NUMBER.fullmatch(text) else None


def parsed(text: bytes) -> Any:
    """Return the value of a JSON text; None if it is invalid or nested too deeply. Lone surrogates are replaced."""
    try:
        return _plain(json.loads(text, parse_constant=_refused), DEPTH)
    except (ValueError, RecursionError):
        return None


def result(value: Any) -> Json | None:
    """Validate a result in the shape of running.write_result. Return None if it is invalid."""
    if not isinstance(value, dict) or not isinstance(value.get("reason"), str) or not _is_time(value.get("ended_at")):
        return None
    found = {"reason": value["reason"][:MOST_TEXT], "ended_at": value["ended_at"]}
    if _is_number(value.get("code")):
        found["code"] = value["code"]
    if isinstance(value.get("error"), str):
        found["error"] = value["error"][:MOST_TEXT]
    return found


def table(value: Any) -> Json:
    """Validate a process table in the shape of running.write_table: {agent, ranks, notes, ending}. agent: {pid,
    started}, or None."""
    value = value if isinstance(value, dict) else {}
    agent = value.get("agent")
    ranks = {one["pid"]: one for one in _objects(value.get("ranks"))[:MOST_RANKS] if _is_rank(one)}
    notes = [one[:MOST_TEXT] for one in _list(value.get("notes"))[:MOST_NOTES] if isinstance(one, str)]
    return {
        "agent": _only(agent, ("pid", "started")) if isinstance(agent, dict) and _is_process(agent) else None,
        "ranks": [_only(one, ("rank", "local_rank", "pid", "started", "gone_at")) for one in ranks.values()],
        "notes": notes,
        "ending": ending(value.get("ending")),
    }


def ending(value: Any) -> Json | None:
    """Return {reason, until, seconds}: why the ranks are being ended, the deadline on the node's monotonic clock, and
    the grace period; see ending.py."""
    if not isinstance(value, dict) or value.get("reason") not in ENDINGS:
        return None
    return _only(value, ENDING) if all(_is_time(value.get(name)) for name in ENDING[1:]) else None


def _is_process(value: Json) -> bool:
    return _is_number(value.get("pid")) and value["pid"] > 1 and _is_number(value.get("started"), 1 << 62)


def _is_rank(value: Json) -> bool:
    gone = value.get("gone_at", 0)
    numbers = all(_is_number(value.get(name)) and value[name] >= 0 for name in ("rank", "local_rank"))
    return numbers and _is_process(value) and (gone is None or _is_time(gone))


def _is_number(value: Any, most: int = MOST_NUMBER) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < most


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11


def _only(value: Json, names: Iterable[str]) -> Json:
    return {name: value.get(name) for name in names}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any) -> list[Json]:
    return [each for each in _list(value) if isinstance(each, dict)]


def _plain(value: Any, depth: int) -> Any:
    if depth < 0:
        raise ValueError("too deep")
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_plain(each, depth - 1) for each in value]
    if isinstance(value, dict):
        return {_plain(name, depth): _plain(each, depth - 1) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a JSON number")
    return value


def _refused(constant: str) -> Any:
    raise ValueError(constant)
