"""Causes outside the ranks: the launcher, its systemd unit, the login session or a data loader worker ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...launch.agent_log import exit_codes
from ...launch.endings import STOPPED, Ending
from ...launch.failure import NO_MANAGER
from ...verdict.commands import OnNode
from ..model import Cause, CausePlace, Question, no, yes
from .process import OOM_KILLS, OOM_LOGGED, says_no_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...launch.failure import Failure
    from ..case import LaunchCase
    from ..evidence import NodeEnd
    from ..model import CauseAnswer, Symptom

HANGUP, INTERRUPT, TERMINATE = "1", "2", "15"
NAMES = {HANGUP: "SIGHUP", INTERRUPT: "SIGINT", TERMINATE: "SIGTERM"}
# Messages of a launcher that timed out waiting for other nodes: the network is to be checked, not the launcher.
WAITED = re.compile(r"Rendezvous|TCPStore|Store|[Tt]imed? ?out|[Cc]onnect|EADDRINUSE|clients joined")
DEATH_SIGNAL = re.compile(r"death signal")
SIGTERM = "SIGTERM"
JOURNAL = OnNode("journalctl --lines=50", become=True)


def of_launchers(case: LaunchCase) -> Iterator[Failure]:
    return (one for one in case.all_failures if one.rank is None and one.ending in (Ending.AGENT, Ending.UNIT))


def nodes_of_launchers(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    return (CausePlace(one.node, what=one.summary) for one in of_launchers(case) if not one.cascade)


def nodes_of_silent_launchers(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the nodes of launchers that may have been killed. In a log, a launcher with a traceback was not."""
    ended = nodes_of_launchers(case, by)
    return (one for one in ended if not case.is_only_a_log or (case.node_ends[one.node]["code"] or 0) <= 0)


def by_end(reads: Callable[[NodeEnd, Failure], bool], source: str) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    """Return a function that checks whether the launcher on a node ended in the given way before the launch was
    stopped."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        for one in of_launchers(case):
            if one.node == place.node and reads(case.node_ends[place.node], one):
                if reads is failed_by_itself and (unknown := says_no_reason(case, one)):
                    return unknown
                return yes(one.summary, f"{source} on {place.node}", one.when)
        return no(f"the launcher on {place.node} ended for another reason", f"{source} on {place.node}")

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
    """Return whether the launcher failed with an exception. A timeout while waiting for other nodes does not count."""
    return (
        failure.ending is Ending.AGENT
        and (end["code"] or 0) > 0
        and bool(failure.traceback)
        and not failure.cascade
        and not WAITED.search(failure.summary)
    )


def signalled_first(number: str) -> Callable[[LaunchCase, Sequence[Symptom]], Iterator[CausePlace]]:
    """Yield the node whose launcher received a signal first. Signals to other launchers might be a consequence."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        told = [
            one
            for one in by
            if one.node and not stop_reached(case, signalled_at(case, one)) and not ended_by_us(case, one.node)
        ]
        first = min(told, key=lambda one: signalled_at(case, one), default=None)
        if first is not None and signal_of(first) in ((number,) if number else tuple(NAMES)):
            yield CausePlace(first.node, rank=first.rank, what=NAMES.get(signal_of(first), ""))

    return places


def signalled_at(case: LaunchCase, one: Symptom) -> float:
    """Return the time at which the launcher received its signal, estimated as the time at which its first rank exited.
    A launcher stops its ranks and waits for them."""
    gone = [end["gone_at"] for end in case.seen["ranks"] if end["node"] == one.node and end["gone_at"]]
    return min([one.when, *gone])


def ended_by_us(case: LaunchCase, node: str) -> bool:
    """Return whether Muster's program on the node stopped the launcher."""
    end = case.node_ends.get(node)
    return end is not None and end["reason"] not in ("", "exit")


def signal_of(one: Symptom) -> str:
    named = one.about.get("number") or one.about.get("name", "")
    return next((number for number, name in NAMES.items() if name == named), named)


def stop_reached(case: LaunchCase, when: float) -> bool:
    """Return whether the supervisor might have caused the output by stopping the launch."""
    return bool(case.launch["stop_began"]) and when >= case.launch["stop_began"]


def nothing_before(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check that no rank or launcher had failed before the launcher received its signal. If none had failed, the signal
    came from outside the launch."""
    end = case.node_ends[place.node]
    earlier = [
        one
        for one in case.all_failures
        if not one.cascade
        and (one.rank is not None or one.node != place.node)
        and (not end["ended_at"] or one.when < end["ended_at"])
    ]
    if earlier:
        return no(f"{earlier[0].where} had failed earlier: {earlier[0].summary}")
    if end["reason"] == STOPPED:
        return no("the whole launch unit was stopped")
    return yes(f"the launcher received {place.what}", f"launcher log on {place.node}", end["ended_at"])


def ranks_signalled(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (
        CausePlace(one.node, rank=one.rank, what=SIGTERM)
        for one in by
        if one.rank is not None and one.about.get("signal") == SIGTERM
    )


def signalled_externally(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check that the rank's launcher did not send the signal. A launcher signals its ranks only after a rank failed or
    after the launcher itself received a signal."""
    mine = next((one for one in case.all_failures if one.rank == place.rank and one.ending is Ending.SIGNAL), None)
    if mine is None:
        return no("the rank was not ended by a signal")
    # torchrun logs the processes that it stops. A rank logged only with its exit was signalled by another process.
    unsaid = mine.local_rank not in exit_codes(case.node_ends[place.node]["log"])
    if mine.by_launcher:
        return no(f"the launcher on {place.node} logged that it stopped the rank")
    for one in case.all_failures:
        if one is not mine and one.when < mine.when and (one.node == mine.node or not one.cascade):
            return no(f"{one.where} had already ended: {one.summary}")
        if one.node == mine.node and one.when == mine.when and unsaid and ended_itself(one):
            return no(f"{one.where} had ended at the same time: {one.summary}")
    end = case.node_ends[place.node]
    if ended_by_us(case, place.node) or DEATH_SIGNAL.search(end["log"]):
        return no(f"the launcher on {place.node} received a signal and stopped its ranks")
    return yes(
        f"exit code -15, but no rank on {place.node} had ended earlier", f"exit codes on {place.node}", mine.when
    )


def ended_itself(one: Failure) -> bool:
    """Return whether a rank exited by itself or because of a signal other than SIGTERM. Launchers send SIGTERM
    first."""
    return one.rank is not None and (one.ending is not Ending.SIGNAL or one.signal != SIGTERM)


def limit_reached(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    for one in case.all_failures:
        if one.ending is Ending.LIMIT:
            return yes(one.summary, f"launch unit on {one.node}", one.when)
    return no()


def anywhere(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case, by
    yield CausePlace()


def ranks_of_workers(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    known = [one for one in by if (one.id == "system.worker_crashed" if case.is_only_a_log else one.rank is not None)]
    return (CausePlace(one.node, rank=one.rank, what=one.line) for one in known if one.final)


def worker_ended(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    for one in case.all_failures:
        if one.rank == place.rank and place.what in (one.summary, *one.traceback.splitlines()):
            return yes(place.what, f"last output of {one.where}", one.when)
    return no("the rank ended for another reason")


LAUNCHER_KILLED = Question(
    "launcher.killed", "was the launcher on {node} killed by a signal?", by_end(killed, "exit status of the unit")
)
UNIT_STOPPED = Question(
    "unit.stopped",
    "was the launch unit on {node} stopped or killed from outside the launch?",
    by_end(stopped, "systemd"),
    JOURNAL,
)
MANAGER_ENDED = Question(
    "unit.no_manager", "did the systemd user manager on {node} exit?", by_end(without_manager, "systemd"), JOURNAL
)
UNIT_OOM = Question("unit.oom", "did the OOM killer end the whole launch on {node}?", by_end(out_of_memory, "systemd"))
LAUNCHER_FAILED = Question(
    "launcher.failed",
    "did the launcher on {node} fail with its own exception?",
    by_end(failed_by_itself, "launcher log"),
)
SIGNALLED_FIRST = Question(
    "launcher.told", "was the launcher on {node} signalled before any failure?", nothing_before, by_words=True
)
RANK_SIGNALLED = Question("rank.told", "did a process other than the launcher stop rank {rank}?", signalled_externally)
LIMIT = Question("launch.limit", "did the launch reach its time limit?", limit_reached)
WORKER_ENDED = Question("rank.worker_ended", "did rank {rank} end because a data loader worker died?", worker_ended)

LAUNCHERS = ("agent.ended", "unit.ended")

CAUSES = (
    Cause(
        "process.launcher",
        scope="node",
        says="a signal killed the launcher on {node}, which also ended the ranks on {node}",
        fix="Check whether memory ran out (OOM killer), and look for the sender of the signal in the journal",
        command=JOURNAL,
        symptoms=LAUNCHERS,
        places=nodes_of_launchers,
        confirm=(LAUNCHER_KILLED,),
    ),
    Cause(
        "process.unit",
        scope="node",
        says="the launch unit on {node} was stopped from outside the launch, for example by systemctl or a shutdown",
        fix="Look in the journal for the command that stopped the unit",
        command=JOURNAL,
        symptoms=LAUNCHERS,
        places=nodes_of_launchers,
        confirm=(UNIT_STOPPED,),
        instead_of=("process.hangup", "process.terminated"),
    ),
    Cause(
        "process.manager",
        scope="node",
        says="the systemd user manager on {node} exited after the last logout (lingering is off), ending the launch",
        fix="Enable lingering to keep the user manager running after a logout: loginctl enable-linger",
        symptoms=LAUNCHERS,
        places=nodes_of_launchers,
        confirm=(MANAGER_ENDED,),
        instead_of=("process.unit",),
    ),
    Cause(
        "process.memory.unit",
        scope="node",
        says="memory ran out on {node}, and the OOM killer ended the launch",
        fix="Reduce memory use (batch, workers, prefetch). List the processes by memory use",
        command=OnNode("ps -eo pid,user,rss,args --sort=-rss"),
        symptoms=LAUNCHERS,
        places=nodes_of_silent_launchers,
        confirm=(UNIT_OOM, OOM_KILLS, OOM_LOGGED),
        instead_of=("process.launcher", "process.unit"),
    ),
    Cause(
        "process.launcher.failed",
        scope="node",
        says="the launcher on {node} failed: {what}",
        fix="Read the launcher log on {node}",
        symptoms=LAUNCHERS,
        places=nodes_of_launchers,
        confirm=(LAUNCHER_FAILED,),
        restates=True,
    ),
    Cause(
        "process.hangup",
        scope="node",
        says="the login session of the launcher on {node} ended, and SIGHUP terminated the launcher",
        fix="Start the launch with Muster or in tmux, where the launch survives a logout",
        symptoms=("python.launcher_signalled",),
        places=signalled_first(HANGUP),
        confirm=(SIGNALLED_FIRST,),
        instead_of=("process.terminated",),
    ),
    Cause(
        "process.terminated",
        scope="node",
        says="another process or a user stopped the launcher on {node} ({what})",
        fix="Ask the users of {node}, and check the journal for a program that ends processes, such as a batch queue",
        command=JOURNAL,
        symptoms=("python.launcher_signalled",),
        places=signalled_first(""),
        confirm=(SIGNALLED_FIRST,),
    ),
    Cause(
        "process.rank_terminated",
        scope="process",
        says="rank {rank} on {node} received SIGTERM from an unknown process other than its launcher",
        fix="Ask the users of {node}, and check the journal for a program that ends processes, such as a batch queue",
        command=JOURNAL,
        symptoms=("rank.signal",),
        places=ranks_signalled,
        confirm=(RANK_SIGNALLED,),
    ),
    Cause(
        "process.time_limit",
        scope="config",
        says="the launch reached its time limit",
        fix="Increase launch_time_limit, or save checkpoints in the script and resume from the last checkpoint",
        symptoms=("launch.limit", "system.time_limit"),
        places=anywhere,
        confirm=(LIMIT,),
        decisive=("system.time_limit",),
    ),
    Cause(
        "process.worker",
        scope="process",
        says="a data loader worker of rank {rank} on {node} died, which ended the rank",
        fix="Use fewer workers or smaller batches, and check the kernel log for an OOM kill",
        command=OnNode("journalctl --dmesg --lines=30", become=True),
        symptoms=("system.worker_killed", "system.worker_crashed"),
        places=ranks_of_workers,
        confirm=(),
        support=(WORKER_ENDED,),
        decisive=("system.worker_killed", "system.worker_crashed"),
    ),
)
