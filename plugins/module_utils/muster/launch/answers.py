"""What nodes answer, read as the foreign input that it is: only what fits the plan and its type is handed on.

A training user may have written the ranks, the result, the errors and the logs: what is no use there is dropped, and
named. The rest comes from the program on the node itself: without it, the whole answer is of no use.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .messages import (
        DiskFacts,
        Identity,
        LastLook,
        LaunchLook,
        LogPart,
        ProcessFacts,
        RanksEnd,
        RankState,
        Result,
        Sample,
        Samples,
    )

    Reader = Callable[[str, str, Any], tuple[Any, tuple[str, ...]]]

AGENT = "agent"
STREAMS = ("stdout", "stderr")
MOST_BYTES = 2**53
MOST_DISK = 2**64  # bytes, or files, of a file system: some servers say that they have nearly as many
MOST_PART = 8 * 1024 * 1024  # characters of one part of a log
MOST_ERROR = 256 * 1024  # characters of what an error file says
MOST_WORD = 200
MOST_NOTES = 20
MOST_FRAMES = 10
MOST_LEFT = 100
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\Z")  # of an account
MOST_ENDING = 86400.0  # seconds that ranks have to end


class UnusableError(ValueError):
    """Says what is wrong with an answer."""


def reader(nodes: Mapping[str, Sequence[int]]) -> Reader:
    """Return read(node, verb, data): what can be used of an answer, and the names of what was dropped.

    Raises UnusableError where nothing can.
    """
    ranks = {node: list(numbers) for node, numbers in nodes.items()}

    def read(node: str, verb: str, data: Any) -> tuple[Any, tuple[str, ...]]:
        if not isinstance(data, dict):
            raise UnusableError("it is no object")
        reading = Reading(data, ranks[node])
        verbs = {
            "identity": reading.identity,
            "look": reading.look,
            "logs": lambda: {"logs": reading.logs()},
            "stop": reading.last_look,
        }
        found = verbs.get(verb, lambda: data)()
        return found, tuple(dict.fromkeys(reading.dropped))

    return read


class Reading:
    """One answer of a node that has these ranks. dropped: what was of no use in it."""

    def __init__(self, data: dict[str, Any], ranks: list[int]) -> None:
        self.data = data
        self.ranks_there = ranks
        self.dropped: list[str] = []

    def identity(self) -> Identity:
        name = word(self.data.get("name")) or ""
        return {
            "uid": needed(whole(self.data.get("uid")), "uid"),
            "gid": needed(whole(self.data.get("gid")), "gid"),
            "name": name if NAME.match(name) else "",  # it becomes part of paths
            "launch_user": self.data.get("launch_user") is True,
        }

    def look(self) -> LaunchLook:
        return {
            "unit": self.unit("unit"),
            "result": self.result(),
            "ranks": self.ranks(),
            "errors": self.errors(),
            "notes": self.notes(),
            "logs": self.logs(),
            "disk": disk(self.data.get("disk")),
            "clock": needed(number(self.data.get("clock")), "clock"),
            "ending": ending(self.data.get("ending")),
            "samples": self.samples(),
        }

    def last_look(self) -> LastLook:
        left = self.data.get("leftovers")
        return {
            **self.look(),
            "unit_before": self.unit("unit_before"),
            "error": word(self.data.get("error"), 4 * MOST_WORD) or "",
            "leftovers": [process(one) for one in left[:MOST_LEFT]] if isinstance(left, list) else [],
            "clean": self.data.get("clean") is True,
            "record": self.data.get("record"),
        }

    def unit(self, name: str) -> dict[str, str]:
        given = self.data.get(name)
        if not isinstance(given, dict):
            raise UnusableError(f"{name} is no object")
        unit = {key: value for key, value in given.items() if word(key) and word(value) is not None}
        if not unit.get("ExecMainStatus", "").isdecimal():
            unit["ExecMainStatus"] = "0"
        return unit

    def result(self) -> Result | None:
        given = self.data.get("result")
        if given is None:
            return None
        if not isinstance(given, dict) or not word(given.get("reason")):
            self.dropped.append("the result")
            return None
        result: Result = {"reason": given["reason"]}
        code, ended_at, error = whole(given.get("code"), -1024), number(given.get("ended_at")), word(given.get("error"))
        if code is not None:
            result["code"] = code
        if ended_at is not None:
            result["ended_at"] = ended_at
        if error is not None:
            result["error"] = error
        return result

    def ranks(self) -> list[RankState]:
        given = self.data.get("ranks")
        entries = given if isinstance(given, list) else []
        found = [state for one in entries[: 4 * len(self.ranks_there)] if (state := self.rank(one))]
        if len(found) != len(entries) or not isinstance(given, list):
            self.dropped.append("a rank")
        return found

    def rank(self, given: Any) -> RankState | None:
        if not isinstance(given, dict):
            return None
        local, gone_at = whole(given.get("local_rank")), given.get("gone_at")
        if local is None or local >= len(self.ranks_there) or given.get("rank") != self.ranks_there[local]:
            return None
        if gone_at is not None and number(gone_at) is None:
            return None
        return {
            "rank": self.ranks_there[local],
            "local_rank": local,
            "pid": whole(given.get("pid")) or 0,
            "gone_at": gone_at,
            "state": word(given.get("state"), 1) or "",
            "cpu": number(given.get("cpu")) or 0.0,
            "wchan": word(given.get("wchan")) or "",
        }

    def samples(self) -> Samples | None:
        given = self.data.get("samples")
        known = given if isinstance(given, dict) else {}
        count, age, entries = whole(known.get("number")), number(known.get("age")), known.get("ranks")
        if count is None or age is None or not isinstance(entries, list):
            return None
        found = [one for each in entries[: len(self.ranks_there)] if (one := self.sample(each))]
        return {"number": count, "age": max(age, 0.0), "ranks": found}

    def sample(self, given: Any) -> Sample | None:
        known = given if isinstance(given, dict) else {}
        local, cpu, switches = whole(known.get("local_rank")), number(known.get("cpu")), whole(known.get("switches"))
        stack, state = known.get("stack"), word(known.get("state"), 1)
        if local is None or local >= len(self.ranks_there) or cpu is None or switches is None or not state:
            return None
        return {
            "local_rank": local,
            "state": state,
            "cpu": cpu,
            "switches": switches,
            "stack": [line for line in stack[:MOST_FRAMES] if word(line)] if isinstance(stack, list) else [],
            "sequence": whole(known.get("sequence")),
            "operation": word(known.get("operation")) or "",
            "begun": known.get("begun") is True,
        }

    def errors(self) -> dict[str, Any]:
        given = self.data.get("errors")
        entries = given if isinstance(given, dict) else {}
        found = {key: error for key, value in entries.items() if self.local(key) and (error := said(value))}
        if len(found) != len(entries) or not isinstance(given, dict):
            self.dropped.append("an error file")
        return found

    def notes(self) -> list[str]:
        given = self.data.get("notes")
        entries = given if isinstance(given, list) else []
        return [one for one in entries[:MOST_NOTES] if word(one, 4 * MOST_WORD)]

    def logs(self) -> dict[str, LogPart]:
        given = self.data.get("logs")
        entries = given if isinstance(given, dict) else {}
        found = {key: part for key, value in entries.items() if self.is_log(key) and (part := log_part(value))}
        if len(found) != len(entries) or not isinstance(given, dict):
            self.dropped.append("a log")
        return found

    def is_log(self, key: Any) -> bool:
        local, _, stream = str(key).partition("/")
        return str(key) == AGENT or (stream in STREAMS and self.local(local))

    def local(self, key: Any) -> bool:
        """Whether it is a local rank, written as Python writes it: no path is made of anything else."""
        return key in map(str, range(len(self.ranks_there)))


def log_part(given: Any) -> LogPart | None:
    """A part whose bytes and text can belong together: a character takes one to four of them."""
    if not isinstance(given, dict):
        return None
    begin, offset, gap = (whole(given.get(name)) for name in ("begin", "offset", "gap"))
    text = word(given.get("text"), MOST_PART)
    if begin is None or offset is None or gap is None or text is None:
        return None
    if not len(text) <= offset - begin - gap <= 4 * len(text):
        return None
    return {"begin": begin, "gap": gap, "offset": offset, "text": text, "more": given.get("more") is True}


def ending(given: Any) -> RanksEnd | None:
    known = given if isinstance(given, dict) else {}
    reason, seconds, left = word(known.get("reason")), number(known.get("seconds")), number(known.get("left"))
    if not reason or seconds is None or left is None:
        return None
    return {"reason": reason, "seconds": min(max(seconds, 0.0), MOST_ENDING), "left": min(max(left, 0.0), MOST_ENDING)}


def said(error: Any) -> dict[str, Any] | None:
    """What torch's error file says, in the two shapes that it has."""
    message = error.get("message") if isinstance(error, dict) else None
    if isinstance(message, str):
        return {"message": message[:MOST_ERROR]}
    if not isinstance(message, dict):
        return None
    more = message.get("extraInfo")
    stack = more.get("py_callstack") if isinstance(more, dict) else None
    if isinstance(stack, str):
        return {"message": {"extraInfo": {"py_callstack": stack[:MOST_ERROR]}}}
    text = message.get("message")
    return {"message": {"message": text[:MOST_ERROR]}} if isinstance(text, str) else None


def process(given: Any) -> ProcessFacts:
    known = given if isinstance(given, dict) else {}
    pid, command, user, unit = (known.get(name) for name in ("pid", "command", "user", "unit"))
    return {
        "pid": whole(pid),
        "command": command[:MOST_WORD] if isinstance(command, str) else "",
        "user": word(user) or "",
        "unit": word(unit) or "",
    }


def disk(given: Any) -> DiskFacts:
    if not isinstance(given, dict):
        raise UnusableError("disk is no object")
    return {
        "path": word(given.get("path"), 4096) or "",
        "free": needed(whole(given.get("free"), most=MOST_DISK), "disk"),
        "total": needed(whole(given.get("total"), most=MOST_DISK), "disk"),
        "inodes_free": whole(given.get("inodes_free"), most=MOST_DISK),
        "read_only": given.get("read_only") is True,
    }


def needed(value: Any, name: str) -> Any:
    if value is None:
        raise UnusableError(f"{name} is missing or no number")
    return value


def number(value: Any) -> float | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST_BYTES
    return value if usable and math.isfinite(value) else None


def whole(value: Any, least: int = 0, most: int = MOST_BYTES) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool)
    return value if usable and least <= value < most else None


def word(value: Any, most: int = MOST_WORD) -> str | None:
    return value if isinstance(value, str) and len(value) <= most else None
