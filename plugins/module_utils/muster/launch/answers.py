"""Validate the answers of nodes about a launch, which are untrusted input. Only data that matches the plan and the
expected types is used.

The training user might have written the ranks, the result, the errors and the logs: unusable parts of these are dropped
and reported. Muster's program on the node writes the other fields: if one of these is unusable, the whole answer is
rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.reading import UnusableError, read
from .messages import Identity, LastLook, LaunchLook, Logs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .messages import LogPart, RankState, Samples

    Reader = Callable[[str, str, Any], tuple[Any, tuple[str, ...]]]

AGENT = "agent"
STREAMS = ("stdout", "stderr")
SHAPES: dict[str, type[Any]] = {"identity": Identity, "look": LaunchLook, "logs": Logs, "stop": LastLook}
NAMED = {"result": "the result", "ranks": "a rank", "errors": "an error file", "logs": "a log"}
MOST_ENDING = 86400.0  # seconds for ranks to end


def reader(ranks: Mapping[str, Sequence[int]]) -> Reader:
    """Return a function read(node, verb, data) that returns the usable part of an answer and the names of the dropped
    parts.

    That function raises UnusableError if no part is usable.
    """

    def read_answer(node: str, verb: str, data: Any) -> tuple[Any, tuple[str, ...]]:
        if verb in SHAPES:
            return of_ranks(SHAPES[verb], data, ranks[node])
        if not isinstance(data, dict):
            raise UnusableError("expected an object")
        return data, ()

    return read_answer


def of_ranks(shape: type[Any], data: Any, ranks: Sequence[int]) -> tuple[Any, tuple[str, ...]]:
    """Return the usable part of the answer of a node with these ranks, and the names of the dropped parts."""
    found, lost = read(shape, data)
    dropped = set(lost)
    checks: dict[str, Callable[[Any], Any]] = {
        "ranks": lambda given: known_ranks(given, ranks),
        "result": lambda given: given if given and "reason" in given else None,
        "errors": lambda given: {key: one for key, one in given.items() if is_local(key, ranks) and one["message"]},
        "logs": lambda given: {key: one for key, one in given.items() if is_log(key, ranks) and is_whole(one)},
    }
    for name, check in checks.items():
        if name in found:
            used = check(found[name])
            dropped |= {name} if len(used or ()) != len(found[name] or ()) else set()
            found[name] = used
    for name in ("unit", "unit_before"):
        if name in found and not found[name].get("ExecMainStatus", "").isdecimal():
            found[name]["ExecMainStatus"] = "0"
    if ending := found.get("ending"):
        found["ending"] = {**ending, **{name: min(max(ending[name], 0.0), MOST_ENDING) for name in ("seconds", "left")}}
    if samples := found.get("samples"):
        found["samples"] = known_samples(samples, ranks)
    return found, tuple(name for part, name in NAMED.items() if part in dropped)


def known_ranks(states: Sequence[RankState], ranks: Sequence[int]) -> list[RankState]:
    there = {(rank, local) for local, rank in enumerate(ranks)}
    return [
        one
        for one in states[: 4 * len(ranks)]
        if (one.get("rank"), one.get("local_rank")) in there and "gone_at" in one
    ]


def known_samples(samples: Samples, ranks: Sequence[int]) -> Samples:
    found = [one for one in samples["ranks"][: len(ranks)] if one["local_rank"] < len(ranks)]
    return {"number": samples["number"], "age": max(samples["age"], 0.0), "ranks": found}


def is_log(key: str, ranks: Sequence[int]) -> bool:
    local, _, stream = key.partition("/")
    return key == AGENT or (stream in STREAMS and is_local(local, ranks))


def is_local(key: str, ranks: Sequence[int]) -> bool:
    """Return whether the key is a local rank as Python prints it. Only such keys are used in paths."""
    return key in map(str, range(len(ranks)))


def is_whole(part: LogPart) -> bool:
    """Return whether the text can have this number of bytes: each character has one to four bytes."""
    text = len(part["text"])
    return text <= part["offset"] - part["begin"] - part["gap"] <= 4 * text
