"""What the rank that failed first said last, for the list of launches: judged from what every node keeps of the end, as
the launch's own supervisor judges it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import launchers
from .answers import MOST_PART, Reading, number, word
from .failure import NodeReport, first_failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .failure import Failure

MOST_RANKS = 1024  # of one node


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
    failed, ranks = one.get("failed"), one.get("ranks")
    if not isinstance(failed, dict) or not isinstance(ranks, list):
        return None
    if not 0 < len(ranks) <= MOST_RANKS or not all(isinstance(rank, int) for rank in ranks):
        return None
    read = Reading({**failed, "result": one.get("result")}, ranks)
    stderr = failed.get("stderr")
    texts = stderr.items() if isinstance(stderr, dict) else ()
    received = number(answer.get("received")) or 0.0
    clock = number(answer.get("clock"))
    return NodeReport(
        node,
        last_answer=received,
        clock_offset=0.0 if clock is None else clock - received,
        ended=read.result(),
        ranks=read.ranks(),
        first_rank=ranks[0],
        errors=read.errors(),
        agent_log=word(failed.get("agent"), MOST_PART) or "",
        stderr={local: text for local, text in texts if read.local(local) and word(text, MOST_PART)},
        launcher=launchers.spoken(str(one.get("launcher") or launchers.TORCHRUN.name)),
    )
