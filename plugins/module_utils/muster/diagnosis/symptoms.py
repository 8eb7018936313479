"""What a case shows at first sight: how ranks, launchers and nodes ended, and the lines that they left.

A rank's last words are the exception that ended it, or its last lines; what it printed before may have been dealt with.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..launch.endings import Ending
from ..launch.tracebacks import RANK_PREFIX, fatal_error, last_traceback
from .model import Symptom
from .texts import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..launch.failure import Failure
    from .case import Case
    from .evidence import RankEnd
    from .model import Text

# Symptoms that are no text, with what they are.
OTHERS = {
    "rank.exception": "a rank ended by an exception of its own",
    "rank.victim": "a rank ended by an exception that says that a peer is gone",
    "rank.signal": "a rank was ended by a signal",
    "rank.exit": "a rank ended with a code of its own",
    "agent.ended": "the launcher itself failed on a node",
    "unit.ended": "the launch's unit was ended from outside",
    "node.lost": "a node stopped answering",
    "launch.stalled": "no rank wrote a line any more, or the launch hangs now",
    "launch.limit": "the time limit was reached",
    "launch.lease": "nobody renewed the lease",
    "launch.peer": "a node of a detached launch was silent, or ended",
    "launch.start": "the launch could not be started on a node",
}
OF_ENDING = {
    Ending.SIGNAL: "rank.signal",
    Ending.EXIT: "rank.exit",
    Ending.AGENT: "agent.ended",
    Ending.UNIT: "unit.ended",
    Ending.NODE: "node.lost",
    Ending.LIMIT: "launch.limit",
    Ending.LEASE: "launch.lease",
    Ending.PEER: "launch.peer",
}
PATTERNS = tuple((text, re.compile(text.pattern)) for text in TEXTS)
LAST_LINES = 12  # of a rank that left no exception
MOST_LINES = 400  # of each log, its last
LONGEST = 2000  # characters of a line that are looked at
SIGNAL = re.compile(r"was (?:killed by |told to stop \()(?P<signal>SIG[A-Z0-9]+|signal \d+)")
START = re.compile(r"could not be started on ")


def read(case: Case) -> list[Symptom]:
    """All symptoms, each once, in the order of nodes and ranks; how ranks ended comes before what they printed."""
    found = [*ends(case), *whole_launch(case), *lines_of_ranks(case), *lines_of_launchers(case)]
    return list(
        {(one.id, one.node, one.rank, tuple(sorted(one.about.items()))): one for one in reversed(found)}.values()
    )[::-1]


def ends(case: Case) -> Iterator[Symptom]:
    for failure in case.all_failures:
        about = SIGNAL.search(failure.summary)
        yield Symptom(
            of_failure(failure),
            failure.node,
            failure.rank,
            failure.when,
            failure.summary,
            about.groupdict() if about else {},
            victim=failure.cascade,
        )


def of_failure(failure: Failure) -> str:
    if failure.ending is Ending.EXCEPTION:
        return "rank.victim" if failure.cascade else "rank.exception"
    return OF_ENDING.get(failure.ending, "agent.ended")


def whole_launch(case: Case) -> Iterator[Symptom]:
    launch = case.launch
    if launch["ending"] == Ending.STALLED.name or launch["live"]:
        yield Symptom("launch.stalled", "", when=launch["stop_began"], line=launch["ending_text"])
    elif launch["ending"] == Ending.FAILED.name and START.search(launch["ending_text"]):
        yield Symptom("launch.start", launch["ending_node"], when=launch["stop_began"], line=launch["ending_text"])


def lines_of_ranks(case: Case) -> Iterator[Symptom]:
    for end in case.seen["ranks"]:
        final = last_words(end)
        when = end["gone_at"] or 0.0
        for line in [*final, *end["error"].splitlines()]:
            yield from of_line(line, end["node"], end["rank"], when, case.texts, final=True)
        for line in end["stderr"].splitlines()[-MOST_LINES:]:
            yield from of_line(RANK_PREFIX.sub("", line), end["node"], end["rank"], when, case.texts, final=False)


def last_words(end: RankEnd) -> list[str]:
    if (end["code"] or 0) < 0 and (died := fatal_error(end["stderr"])):
        return died.splitlines()
    traceback = last_traceback(end["stderr"])
    text = traceback or RANK_PREFIX.sub("", end["stderr"]).rstrip()
    return text.splitlines()[-MOST_LINES if traceback else -LAST_LINES :]


def lines_of_launchers(case: Case) -> Iterator[Symptom]:
    for end in case.seen["nodes"]:
        for line in end["log"].splitlines()[-MOST_LINES:]:
            yield from of_line(RANK_PREFIX.sub("", line), end["node"], None, end["ended_at"], case.texts, final=True)


def of_line(
    line: str, node: str, rank: int | None, when: float, more: tuple[Text, ...], *, final: bool
) -> Iterator[Symptom]:
    for number, about in matches(line[:LONGEST], more):
        text = (*TEXTS, *more)[number]
        yield Symptom(text.id, node, rank, when, line.strip(), dict(about), text.victim, final)


@lru_cache(maxsize=8)
def compiled(texts: tuple[Text, ...]) -> tuple[tuple[Text, re.Pattern[str]], ...]:
    return tuple((text, re.compile(text.pattern)) for text in texts)


@lru_cache(maxsize=4096)
def matches(line: str, more: tuple[Text, ...]) -> tuple[tuple[int, tuple[tuple[str, str], ...]], ...]:
    """Which texts this line is, by their numbers, with the groups that were found. Most ranks print the same lines."""
    found = ((number, pattern.search(line)) for number, (_, pattern) in enumerate((*PATTERNS, *compiled(more))))
    return tuple(
        (number, tuple((name, value.strip()) for name, value in match.groupdict().items() if value is not None))
        for number, match in found
        if match
    )
