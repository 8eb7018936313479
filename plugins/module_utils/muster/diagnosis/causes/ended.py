"""What was ended from outside, or failed above the ranks: the launcher, its unit, the login, a data loader's worker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...launch.agent_log import exit_codes
from ...launch.endings import STOPPED, Ending
from ...launch.failure import NO_MANAGER
from ...verdict.commands import OnNode
from ..model import Cause, CausePlace, Question, no, yes
from .process import OOM_KILLS, OOM_LOGGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...launch.failure import Failure
    from ..case import LaunchCase
    from ..evidence import NodeEnd
    from ..model import CauseAnswer, Symptom

HANGUP, INTERRUPT, TERMINATE = "1", "2", "15"
NAMES = {HANGUP: "SIGHUP", INTERRUPT: "SIGINT", TERMINATE: "SIGTERM"}
# What a launcher says when it waited in vain for others: the way to them is to be looked at, and not the launcher.
WAITED = re.compile(r"Rendezvous|TCPStore|Store|[Tt]imed? ?out|[Cc]onnect|EADDRINUSE|clients joined")
DEATH_SIGNAL = re.compile(r"death signal")
SIGTERM = "SIGTERM"
JOURNAL = OnNode("journalctl --lines=50", become=True)


def of_launchers(case: LaunchCase) -> Iterator[Failure]:
    return (one for one in case.all_failures if one.rank is None and one.ending in (Ending.AGENT, Ending.UNIT))


def nodes_of_launchers(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    return (CausePlace(one.node, what=one.summary) for one in of_launchers(case) if not one.cascade)


def by_end(reads: Callable[[NodeEnd, Failure], bool], source: str) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    """Whether the launcher of a node ended so, before anybody had decided to stop the launch."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        for one in of_launchers(case):
            if one.node == place.node and reads(case.node_ends[place.node], one):
                return yes(one.summary, f"{source} on {place.node}", one.when)
        return no(f"the launcher on {place.node} ended otherwise")

    return look


def killed(end: NodeEnd, failure: Failure) -> bool:
    return failure.ending is Ending.AGENT and (end["code"] or 0) < 0


def stopped(end: NodeEnd, failure: Failure) -> bool:
    return failure.ending is Ending.UNIT and end["result"] not in (NO_MANAGER, "oom-kill")


def without_manager(end: NodeEnd, failure: Failure) -> bool:
    return failure.ending is Ending.UNIT and end["result"] == NO_MANAGER


def out_of_memory(end: NodeEnd, failure: Failure) -> bool:
    return failure.ending is Ending.UNIT and end["result"] == "oom-kill"


def failed_by_itself(end: NodeEnd, failure: Failure) -> bool:
    """With an exception of its own, which is no waiting for others."""
    return (
        failure.ending is Ending.AGENT
        and (end["code"] or 0) > 0
        and bool(failure.traceback)
        and not failure.cascade
        and not WAITED.search(failure.summary)
    )


def signalled_first(number: str) -> Callable[[LaunchCase, Sequence[Symptom]], Iterator[CausePlace]]:
    """The node whose launcher was told to stop before all others: those may have been told because of it."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        told = [
            one
            for one in by
            if one.node and not stop_reached(case, told_at(case, one)) and not ended_by_us(case, one.node)
        ]
        first = min(told, key=lambda one: told_at(case, one), default=None)
        if first is not None and signal_of(first) in ((number,) if number else tuple(NAMES)):
            yield CausePlace(first.node, rank=first.rank, what=NAMES.get(signal_of(first), ""))

    return places


def told_at(case: LaunchCase, one: Symptom) -> float:
    """A launcher that was told to stop ends its ranks first, and waits for them: the first of them knows when."""
    gone = [end["gone_at"] for end in case.seen["ranks"] if end["node"] == one.node and end["gone_at"]]
    return min([one.when, *gone])


def ended_by_us(case: LaunchCase, node: str) -> bool:
    """Whether the launch's own program ended its part there, and so told the launcher to stop."""
    end = case.node_ends.get(node)
    return end is not None and end["reason"] not in ("", "exit")


def signal_of(one: Symptom) -> str:
    named = one.about.get("number") or one.about.get("name", "")
    return next((number for number, name in NAMES.items() if name == named), named)


def stop_reached(case: LaunchCase, when: float) -> bool:
    """Whether what was said then is the noise of the supervisor's own stop."""
    return bool(case.launch["stop_began"]) and when >= case.launch["stop_began"]


def nothing_before(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """A launcher that was told to stop before anything had failed was told by somebody."""
    end = case.node_ends[place.node]
    earlier = [
        one
        for one in case.all_failures
        if not one.cascade
        and (one.rank is not None or one.node != place.node)
        and (not end["ended_at"] or one.when < end["ended_at"])
    ]
    if earlier:
        return no(f"{earlier[0].where} had failed before: {earlier[0].summary}")
    if end["reason"] == STOPPED:
        return no("its unit was stopped as a whole")
    return yes(f"the launcher was told to stop by {place.what}", f"launcher's log on {place.node}", end["ended_at"])


def ranks_told(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (
        CausePlace(one.node, rank=one.rank, what=SIGTERM)
        for one in by
        if one.rank is not None and one.about.get("signal") == SIGTERM
    )


def told_from_outside(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """The launcher tells its ranks to stop when one of them has failed, or when it was told itself; whoever told this
    one, it was somebody else."""
    mine = next((one for one in case.all_failures if one.rank == place.rank and one.ending is Ending.SIGNAL), None)
    if mine is None:
        return no("it ended otherwise")
    # torchrun names the processes that it tells to stop: one that it names by its end alone was told by somebody else.
    unsaid = mine.local_rank not in exit_codes(case.node_ends[place.node]["log"])
    if mine.by_launcher:
        return no(f"the launcher on {place.node} says that it told it to stop")
    for one in case.all_failures:
        if one is not mine and one.when < mine.when and (one.node == mine.node or not one.cascade):
            return no(f"{one.where} had ended before: {one.summary}")
        if one.node == mine.node and one.when == mine.when and unsaid and ended_itself(one):
            return no(f"{one.where} had ended at the same moment: {one.summary}")
    end = case.node_ends[place.node]
    if ended_by_us(case, place.node) or DEATH_SIGNAL.search(end["log"]):
        return no(f"the launcher on {place.node} was told to stop, and told its ranks")
    return yes(
        f"exit code -15, and no rank of {place.node} had ended before", f"ends of the ranks on {place.node}", mine.when
    )


def ended_itself(one: Failure) -> bool:
    """A rank with a code of its own, or by a signal that no launcher sends first."""
    return one.rank is not None and (one.ending is not Ending.SIGNAL or one.signal != SIGTERM)


def limit_reached(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    for one in case.all_failures:
        if one.ending is Ending.LIMIT:
            return yes(one.summary, f"the launch's unit on {one.node}", one.when)
    return no()


def anywhere(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case, by
    yield CausePlace()


def ranks_of_workers(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node, rank=one.rank, what=one.line) for one in by if one.rank is not None and one.final)


def worker_ended(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    for one in case.all_failures:
        if one.rank == place.rank and place.what in (one.summary, *one.traceback.splitlines()):
            return yes(place.what, f"last words of {one.where}", one.when)
    return no("its rank ended otherwise")


LAUNCHER_KILLED = Question(
    "launcher.killed", "was the launcher on {node} ended by a signal?", by_end(killed, "how the unit's process ended")
)
UNIT_STOPPED = Question(
    "unit.stopped",
    "was the launch's unit on {node} stopped or killed from outside?",
    by_end(stopped, "systemd"),
    JOURNAL,
)
MANAGER_ENDED = Question(
    "unit.no_manager", "did the user's own systemd end on {node}?", by_end(without_manager, "systemd"), JOURNAL
)
UNIT_OOM = Question(
    "unit.oom", "did the kernel end the whole launch on {node} for want of memory?", by_end(out_of_memory, "systemd")
)
LAUNCHER_FAILED = Question(
    "launcher.failed", "did the launcher on {node} fail by itself?", by_end(failed_by_itself, "log of the launcher")
)
TOLD_FIRST = Question(
    "launcher.told", "was the launcher on {node} told to stop before anything had failed?", nothing_before
)
RANK_TOLD = Question("rank.told", "was rank {rank} told to stop by somebody else than its launcher?", told_from_outside)
LIMIT = Question("launch.limit", "did the launch run into its time limit?", limit_reached)
WORKER_ENDED = Question("rank.worker_ended", "did rank {rank} end because of a data loader's worker?", worker_ended)

LAUNCHERS = ("agent.ended", "unit.ended")

CAUSES = (
    Cause(
        "process.launcher",
        group="process",
        scope="node",
        says="the launcher on {node} was ended by a signal, and its ranks with it",
        fix="Look who ended it; the kernel does so when memory runs out",
        command=JOURNAL,
        symptoms=LAUNCHERS,
        places=nodes_of_launchers,
        confirm=(LAUNCHER_KILLED,),
    ),
    Cause(
        "process.unit",
        group="process",
        scope="node",
        says="the launch's unit on {node} was stopped or killed from outside, by systemctl or a shutdown",
        fix="Look in the journal who stopped it",
        command=JOURNAL,
        symptoms=LAUNCHERS,
        places=nodes_of_launchers,
        confirm=(UNIT_STOPPED,),
        instead_of=("process.hangup", "process.terminated"),
    ),
    Cause(
        "process.manager",
        group="process",
        scope="node",
        says="the user's own systemd ended on {node}, and the launch with it: the last login ended, without lingering",
        fix="Let the user's manager stay: loginctl enable-linger",
        symptoms=LAUNCHERS,
        places=nodes_of_launchers,
        confirm=(MANAGER_ENDED,),
        instead_of=("process.unit",),
    ),
    Cause(
        "process.memory.unit",
        group="process",
        scope="node",
        says="the kernel ended the launch on {node}, because memory ran out there",
        fix="Use less memory (batch, workers, prefetch), and look what else runs there",
        command=OnNode("ps -eo pid,user,rss,args --sort=-rss"),
        symptoms=LAUNCHERS,
        places=nodes_of_launchers,
        confirm=(UNIT_OOM, OOM_KILLS, OOM_LOGGED),
        instead_of=("process.launcher", "process.unit"),
    ),
    Cause(
        "process.launcher.failed",
        group="process",
        scope="node",
        says="the launcher on {node} failed by itself: {what}",
        fix="Read the log of the launcher on {node}",
        symptoms=LAUNCHERS,
        places=nodes_of_launchers,
        confirm=(LAUNCHER_FAILED,),
    ),
    Cause(
        "process.hangup",
        group="process",
        scope="node",
        says="the login from which the launcher on {node} was started has ended (SIGHUP), and the launcher with it",
        fix="Begin it where no login ends it: as a launch of Muster, or in tmux",
        symptoms=("python.launcher_signalled",),
        places=signalled_first(HANGUP),
        confirm=(TOLD_FIRST,),
        instead_of=("process.terminated", "process.launcher.failed"),
    ),
    Cause(
        "process.terminated",
        group="process",
        scope="node",
        says="somebody told the launcher on {node} to stop ({what})",
        fix="Ask who works on {node}, or what ends programs there, such as a queue with a time limit",
        command=JOURNAL,
        symptoms=("python.launcher_signalled",),
        places=signalled_first(""),
        confirm=(TOLD_FIRST,),
        instead_of=("process.launcher.failed",),
    ),
    Cause(
        "process.rank_terminated",
        group="process",
        scope="process",
        says="somebody told rank {rank} on {node} to stop (SIGTERM), and not its launcher; who did is not recorded",
        fix="Ask who works on {node}, or what ends programs there, such as a queue or a watchdog for memory",
        command=JOURNAL,
        symptoms=("rank.signal",),
        places=ranks_told,
        confirm=(RANK_TOLD,),
    ),
    Cause(
        "process.time_limit",
        group="process",
        scope="config",
        says="the launch ran into its time limit",
        fix="Raise launch_time_limit, or let the script write checkpoints and go on from them",
        symptoms=("launch.limit",),
        places=anywhere,
        confirm=(LIMIT,),
    ),
    Cause(
        "process.worker",
        group="process",
        scope="process",
        says="a process of the data loader of rank {rank} on {node} was ended, and the rank with it",
        fix="Look whether memory ran out there; fewer or smaller workers need less",
        command=OnNode("journalctl --dmesg --lines=30", become=True),
        symptoms=("system.worker_killed", "system.worker_crashed"),
        places=ranks_of_workers,
        confirm=(WORKER_ENDED,),
        instead_of=("process.exception", "process.exception.everywhere"),
    ),
)
