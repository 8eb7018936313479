"""What the rank that failed first said last, for the list of launches: judged from what every node keeps of the end, as
the launch's own supervisor judges it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ..verdict.reading import Limit, read_one
from . import launchers
from .answers import is_local, of_ranks
from .failure import NodeReport, first_failure
from .messages import MOST_PART, MOST_RANKS, ErrorFile, Number, RankState, Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .failure import Failure

Ranks = Annotated[list[int], Limit(most=MOST_RANKS, whole=True)]
LogEnd = Annotated[str, Limit(most=MOST_PART, raw=True)]


class LastWords(TypedDict):
    """What a node keeps of an end. stderr: of each rank, by local rank."""

    result: Result | None
    ranks: Annotated[list[RankState], Limit(most=MOST_RANKS)]
    errors: Annotated[dict[str, ErrorFile], Limit(most=MOST_RANKS)]
    agent: LogEnd
    stderr: Annotated[dict[str, LogEnd], Limit(most=MOST_RANKS)]


def first(
    here: Mapping[str, Mapping[str, Any]], answers: Mapping[str, Mapping[str, Any]]
) -> tuple[Failure | None, str]:
    """(the first failure, the end of its rank's stderr). here: by node, what that node says of the launch."""
    found = {name: report for name, one in here.items() if (report := report_of(name, one, answers[name]))}
    # Whoever ended it has said why: that the other parts were stopped then is no failure of theirs.
    stopped = any(one.get("why") for one in here.values())
    failure, _ = first_failure(list(found.values()), float("-inf") if stopped else float("inf"))
    if failure is None or failure.local_rank is None:
        return failure, ""
    return failure, found[failure.node].said_by(failure.local_rank)


def report_of(node: str, one: Mapping[str, Any], answer: Mapping[str, Any]) -> NodeReport | None:
    """What can be used of it; None where the node has nothing to say of how it failed."""
    failed, ranks = one.get("failed"), read_one(Ranks, one.get("ranks"))
    if not isinstance(failed, dict) or not ranks:
        return None
    last, _ = of_ranks(LastWords, {**failed, "result": one.get("result")}, ranks)
    received = read_one(Number, answer.get("received")) or 0.0
    clock = read_one(Number, answer.get("clock"))
    return NodeReport(
        node,
        last_answer=received,
        clock_offset=0.0 if clock is None else clock - received,
        ended=last["result"],
        ranks=last["ranks"],
        first_rank=ranks[0],
        errors=last["errors"],
        agent_log=last["agent"],
        stderr={local: text for local, text in last["stderr"].items() if is_local(local, ranks) and text},
        launcher=launchers.spoken(str(one.get("launcher") or launchers.TORCHRUN.name)),
    )
