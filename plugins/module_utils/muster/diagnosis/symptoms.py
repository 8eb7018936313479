"""Symptoms of a case: how ranks, launchers and nodes ended, and the lines that they printed.

The last output of a rank is the exception that ended it, or its last lines. Earlier errors may have been handled.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..launch.endings import Ending, never
from ..launch.tracebacks import RANK_PREFIX, fatal_error, last_traceback
from .model import Symptom
from .texts import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..launch.failure import Failure
    from .case import LaunchCase
    from .evidence import RankEnd, Text

# Symptoms other than texts, with their descriptions.
OTHERS = {
    "rank.exception": "a rank failed with an exception",
    "rank.victim": "a rank failed with an exception about a lost peer",
    "rank.signal": "a rank was killed by a signal",
    "rank.exit": "a rank exited with an error code",
    "agent.ended": "the launcher failed on a node",
    "unit.ended": "the launch unit was stopped from outside the launch",
    "node.lost": "a node stopped responding",
    "launch.stalled": "all ranks stopped producing output, or the running launch hangs",
    "launch.limit": "the time limit was reached",
    "launch.lease": "the lease of the launch was not renewed",
    "launch.peer": "a node of a detached launch stopped responding or ended",
    "launch.start": "the launch could not be started on a node",
}
# Exceptions of torch's communication or of CUDA, in contrast to those of a program.
COMMUNICATION = re.compile(r"\bDist\w+Error|\bNCCL\b|nccl[A-Z]\w+Error|CUDA|\bcu(?:DNN|BLAS)|[Gg]loo\b|c10d|Rendezvous")
RUNNING = "the launch has not ended"
LAST_LINES = 12  # of a rank without an exception
MOST_LINES = 400  # last lines of each log
LONGEST = 2000  # characters of a line that are matched
DIGITS = re.compile(r"[0-9]+")


def read(case: LaunchCase) -> list[Symptom]:
    """Return all symptoms without duplicates, in the order of nodes and ranks: first the exits of ranks, then the
    printed lines."""
    found = [*ends(case), *whole_launch(case), *lines_of_ranks(case), *lines_of_launchers(case)]
    return list(
        {(one.id, one.node, one.rank, tuple(sorted(one.about.items()))): one for one in reversed(found)}.values()
    )[::-1]


def ends(case: LaunchCase) -> Iterator[Symptom]:
    for failure in case.all_failures:
        yield Symptom(
            of_failure(failure),
            failure.node,
            failure.rank,
            failure.when,
            failure.summary,
            {"signal": failure.signal} if failure.signal else {},
            victim=failure.cascade,
        )


def of_failure(failure: Failure) -> str:
    match failure.ending:
        case Ending.EXCEPTION:
            found = "rank.victim" if failure.cascade else "rank.exception"
        case Ending.SIGNAL:
            found = "rank.signal"
        case Ending.EXIT:
            found = "rank.exit"
        case Ending.UNIT:
            found = "unit.ended"
        case Ending.NODE:
            found = "node.lost"
        case Ending.LIMIT:
            found = "launch.limit"
        case Ending.LEASE:
            found = "launch.lease"
        case Ending.PEER:
            found = "launch.peer"
        case Ending.AGENT | Ending.FAILED | Ending.INTERRUPTED:  # also an unknown reason from a node
            found = "agent.ended"
        case Ending.FINISHED | Ending.TAKEN | Ending.STALLED | Ending.DETACHED as other:
            raise ValueError(f"{other} is not a failure of a rank or a node")
        case other:
            never(other)
    return found


def whole_launch(case: LaunchCase) -> Iterator[Symptom]:
    launch = case.launch
    if launch["ending"] == Ending.STALLED.name or launch["live"]:
        text = launch["ending_text"] or RUNNING
        yield Symptom("launch.stalled", "", when=launch["stop_began"], line=text)
    elif launch["ending"] == Ending.FAILED.name and launch.get("starting"):
        yield Symptom("launch.start", launch["ending_node"], when=launch["stop_began"], line=launch["ending_text"])
    elif launch["ending"] == Ending.FAILED.name and launch["ending_text"] and has_vanished(case, launch["ending_node"]):
        yield Symptom("unit.ended", launch["ending_node"], when=launch["stop_began"], line=launch["ending_text"])


def has_vanished(case: LaunchCase, node: str) -> bool:
    """Return whether the launch ended on a node without a result, as after a reboot."""
    end = case.node_ends.get(node)
    failed = any(one.node == node for one in case.all_failures)
    return end is not None and not (failed or end["lost"] or end["reason"])


def lines_of_ranks(case: LaunchCase) -> Iterator[Symptom]:
    for end in case.seen["ranks"]:
        final = [*last_words(end), *end["error"].splitlines()]
        before = [RANK_PREFIX.sub("", line) for line in end["stderr"].splitlines()[-MOST_LINES:]]
        when = end["gone_at"] or 0.0
        known = within(list(dict.fromkeys((*before, *final))), case.texts)
        for lines, is_final in ((final, True), (before, False)):
            for line in lines if known else ():
                yield from of_line(line, end["node"], end["rank"], when, case.texts, known, final=is_final)


def ends_with(case: LaunchCase, ids: frozenset[str]) -> bool:
    """Return whether every brought log ends with one of these texts, as the logs of a hanging launch do."""
    patterns = [re.compile(text.pattern) for text in TEXTS if text.id in ids]
    return all(any(one.search(line) for one in patterns) for line in case.seen.get("last", ()))


def last_words(end: RankEnd) -> list[str]:
    if (end["code"] or 0) < 0 and (died := fatal_error(end["stderr"])):
        return died.splitlines()
    traceback = last_traceback(end["stderr"])
    text = traceback or RANK_PREFIX.sub("", end["stderr"]).rstrip()
    return text.splitlines()[-MOST_LINES if traceback else -LAST_LINES :]


def lines_of_launchers(case: LaunchCase) -> Iterator[Symptom]:
    for end in case.seen["nodes"]:
        lines = [RANK_PREFIX.sub("", line) for line in end["log"].splitlines()[-MOST_LINES:]]
        known = within(lines, case.texts)
        for line in lines if known else ():
            yield from of_line(line, end["node"], None, end["ended_at"], case.texts, known, final=True)


def of_line(
    line: str,
    node: str,
    rank: int | None,
    when: float,
    more: tuple[Text, ...],
    known: tuple[int, ...],
    *,
    final: bool,
) -> Iterator[Symptom]:
    """Yield the symptoms in a line. known: indexes of the texts that can match."""
    for number, about in matches(line[:LONGEST], more, known):
        text = (*TEXTS, *more)[number]
        yield Symptom(text.id, node, rank, when, line.strip(), dict(about), text.victim, final)


class TextPattern(NamedTuple):
    """The pattern of a text, for one line and for many lines at once (MULTILINE). numbered: the pattern contains a
    number."""

    line: re.Pattern[str]
    lines: re.Pattern[str]
    numbered: bool


@lru_cache(maxsize=8)
def compiled(more: tuple[Text, ...]) -> tuple[TextPattern, ...]:
    patterns = [text.pattern for text in (*TEXTS, *more)]
    return tuple(
        TextPattern(re.compile(one), re.compile(one, re.MULTILINE), DIGITS.search(one) is not None) for one in patterns
    )


def within(lines: Sequence[str], more: tuple[Text, ...]) -> tuple[int, ...]:
    """Return the indexes of the texts found in these lines. Most texts occur in no log, so searching all lines at once
    for each text is faster than matching line by line, which takes seconds with hundreds of ranks. For texts without a
    number, of several lines that differ only in numbers one is enough."""
    lines = [line[:LONGEST] for line in lines]
    whole, shapes = "\n".join(lines), "\n".join({DIGITS.sub("0", line): line for line in lines}.values())
    known = enumerate(compiled(more))
    return tuple(number for number, one in known if one.lines.search(whole if one.numbered else shapes))


@lru_cache(maxsize=4096)
def matches(
    line: str, more: tuple[Text, ...], known: tuple[int, ...]
) -> tuple[tuple[int, tuple[tuple[str, str], ...]], ...]:
    """Return the known texts that match the line, with their groups. The result is cached, because most ranks print the
    same lines."""
    patterns = compiled(more)
    found = ((number, patterns[number].line.search(line)) for number in known)
    return tuple(
        (number, tuple((name, value.strip()) for name, value in match.groupdict().items() if value is not None))
        for number, match in found
        if match
    )
