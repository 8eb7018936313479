"""What nodes answer about a launch, read as foreign input: only what fits the plan and its shape is handed on.

A training user may have written the ranks, the result, the errors and the logs: what is no use there is dropped, and
named. The rest comes from the program on the node itself: without it, the whole answer is of no use.
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
MOST_ENDING = 86400.0  # seconds that ranks have to end


def reader(ranks: Mapping[str, Sequence[int]]) -> Reader:
    """Return read(node, verb, data): what can be used of an answer, and the names of what was dropped.

    Raises UnusableError where nothing can.
    """

    def read_answer(node: str, verb: str, data: Any) -> tuple[Any, tuple[str, ...]]:
        if verb in SHAPES:
            return of_ranks(SHAPES[verb], data, ranks[node])
        if not isinstance(data, dict):
            raise UnusableError("expected an object")
        return data, ()

    return read_answer


def of_ranks(shape: type[Any], data: Any, ranks: Sequence[int]) -> tuple[Any, tuple[str, ...]]:
    """What can be used of an answer of a node that has these ranks, and the names of what was dropped."""
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
    """Whether it is a local rank, written as Python writes it: no path is made of anything else."""
    return key in map(str, range(len(ranks)))


def is_whole(part: LogPart) -> bool:
    """Whether its bytes and its text can belong together: a character takes one to four of them."""
    text = len(part["text"])
    return text <= part["offset"] - part["begin"] - part["gap"] <= 4 * text
