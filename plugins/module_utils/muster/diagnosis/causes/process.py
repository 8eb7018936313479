"""Causes within a process: exception, exit code, crash, out of memory, killed, stopped, frozen, waiting for a disk."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...launch.endings import Ending
from ...launch.tracebacks import FRAME
from ...verdict.commands import OnNode
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..questions import shots_at, state_of
from ..symptoms import COMMUNICATION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...launch.failure import Failure
    from ..case import LaunchCase
    from ..evidence import NodeRecord
    from ..model import CauseAnswer, Places, Symptom

CRASHES = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")
KILLED = ("SIGKILL",)
IN_A_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3")
OOM_LINE = ("Out of memory: Killed process", "oom-kill:", "Memory cgroup out of memory")


# ---------------------------------------------------------------- places


def ranks_shown(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield each rank that showed the symptom itself."""
    del case
    return (CausePlace(one.node, rank=one.rank, what=one.line) for one in by if one.rank is not None and not one.victim)


def ranks_by_signal(*signals: str) -> Places:
    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        for one in by:
            is_told = one.rank is not None and one.id not in OF_A_LOG
            if one.victim or not (is_told or case.is_only_a_log):
                continue
            if one.id != "rank.signal" or one.about.get("signal") in signals:
                yield CausePlace(one.node, rank=one.rank, what=one.about.get("signal", ""))

    return places


def alone_with_it(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield each rank whose exception did not occur on every rank."""
    return (place for place in ranks_shown(case, by) if not on_every_rank(case, place.what))


def shared_by_all(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    return (CausePlace(what=place.what) for place in ranks_shown(case, by) if on_every_rank(case, place.what))


def on_every_rank(case: LaunchCase, what: str) -> bool:
    with_it = {one.rank for one in case.all_failures if one.summary == what and one.rank is not None}
    return len(with_it) > 1 and len(with_it) == case.launch["world_size"]


def every_live_rank(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    return (CausePlace(node, rank=rank) for rank, (node, _) in sorted(case.shots.items()))


def every_node(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    return (CausePlace(node) for node in case.nodes)


# ---------------------------------------------------------------- checks


def ended_by_itself(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    for one in case.all_failures:
        if one.rank == place.rank and one.node == place.node and not one.cascade:
            source = f"last output of {one.where}"
            return says_no_reason(case, one) or yes(one.summary, source, one.when)
    return no("the rank ended because another rank ended", "last output of the ranks")


def ended_alike(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    alike = [one for one in case.all_failures if one.summary == place.what]
    source = f"last output of all {case.launch['world_size']} ranks"
    return says_no_reason(case, alike[0]) or yes(place.what, source)


def says_no_reason(case: LaunchCase, failure: Failure) -> CauseAnswer | None:
    """In a log alone, an exception of a library, or an exit without a word, does not show why a rank ended."""
    if not case.is_only_a_log:
        return None
    frames = FRAME.findall(failure.traceback)
    if failure.ending is Ending.EXIT and not failure.traceback and ":" not in failure.summary:
        return not_looked("the rank printed no reason")
    if COMMUNICATION.search(failure.summary) or (frames and IN_A_LIBRARY.search(frames[-1])):
        return not_looked("the exception was raised by a library, and its reason is unknown")
    return None


def killed_for_memory(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    grown = case.grown(place.node, oom_kills)
    if grown is None:
        of_machine = case.grown(place.node, oom_kills_of_machine)
        if of_machine:
            return yes(
                f"the oom_kill counter of {place.node} increased by {of_machine}",
                f"memory events of the container {place.node}",
            )
        if of_machine == 0 or case.grown(place.node, oom_kills_of_all) == 0:
            return no("the OOM killer did not end any process", f"oom_kill on {place.node}")
        return not_looked(case.why_not(place.node, "unit"))
    if grown > 0:
        return yes(f"the oom_kill counter of the launch cgroup increased by {grown}", f"memory.events on {place.node}")
    return no("the oom_kill counter did not increase", f"memory.events on {place.node}")


def oom_kills(record: NodeRecord) -> int | None:
    return record["unit"]["memory_events"].get("oom_kill") if record["unit"] else None


def oom_kills_of_machine(record: NodeRecord) -> int | None:
    """Return the number of OOM kills in the container, if the node is a container."""
    return record["counters"].get("machine.oom_kill")


def oom_kills_of_all(record: NodeRecord) -> int | None:
    """Return the number of OOM kills on the whole machine. If this number is zero, a launch without its own counter
    had no OOM kills either."""
    return record["counters"].get("vm.oom_kill")


def limit_was_reached(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the launch reached its own memory limit instead of using up the memory of the machine."""
    record = case.record(place.node)
    unit = record["unit"] if record else None
    if unit is None:
        return not_looked(case.why_not(place.node, "unit"))
    if unit["memory_max"] is None:
        return no("the launch has no memory limit", f"memory.max on {place.node}")
    grown = case.grown(place.node, oom_kills)
    return yes(f"memory.max is {unit['memory_max']} bytes", f"launch cgroup on {place.node}") if grown else no()


def kernel_says_memory(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.seen["end"].get(place.node)
    if record is None or record["kernel"] is None:
        return not_looked(case.why_not(place.node, "kernel"))
    for line in record["kernel"]:
        if any(words in line["text"] for words in OOM_LINE):
            return yes(line["text"], f"kernel log of {place.node}", line["at"])
    return no("the kernel logged no OOM kill", f"kernel log of {place.node}")


def killed_without_oom(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check that the OOM killer did not send SIGKILL, according to the OOM counter or the kernel log."""
    counted, logged = killed_for_memory(case, place), kernel_says_memory(case, place)
    words = {counted.word, logged.word}
    if "yes" in words:
        return no("the OOM killer ended the rank")
    if "no" in words:
        seen = counted if counted.word == "no" else logged
        return yes(f"SIGKILL, and {seen.text}", seen.source)
    return not_looked(counted.text)


def frozen(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    shot = case.seen["snapshots"].get(place.node)
    if shot is None:
        return not_looked(f"{place.node} was not inspected before the launch was stopped")
    if shot["frozen"] is None:
        return not_looked(shot["unseen"].get("frozen", "the cgroup was not checked"))
    return yes("the cgroup is frozen", f"cgroup.freeze on {place.node}") if shot["frozen"] else no("not frozen")


def crashed(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    end = case.rank_ends.get(place.rank if place.rank is not None else -1)
    if end is None or end["code"] is None:
        return not_looked("the exit code of the rank is unknown")
    if case.is_only_a_log and place.what == "SIGBUS":
        return not_looked("SIGBUS also ends a process if shared memory or a disk is full")
    return yes(f"exit code {end['code']} ({place.what})", "launcher record of the rank") if end["code"] < 0 else no()


def script_exited(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    end = case.rank_ends.get(place.rank if place.rank is not None else -1)
    if end is None or end["code"] is None:
        return not_looked("the exit code of the rank is unknown")
    unknown = next(
        (why for one in case.all_failures if one.rank == place.rank and (why := says_no_reason(case, one))), None
    )
    return unknown or (yes(place.what, "launcher record of the rank") if end["code"] > 0 else no())


def in_its_stack(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check for a rank in state D (uninterruptible sleep) in an NFS or RPC function of the kernel."""
    for shot in shots_at(case, place):
        if shot["state"] == "D" and ("nfs" in shot["wchan"] or "rpc" in shot["wchan"]):
            return yes(f"rank {shot['rank']} waits in {shot['wchan']}", "/proc snapshot")
    return no()


OWN_END = Question("rank.own_end", "did rank {rank} end for a reason other than a lost peer?", ended_by_itself)
ALIKE = Question("ranks.alike", "did every rank end with the same exception?", ended_alike)
OOM_KILLS = Question(
    "memory.oom_kill",
    "did the OOM killer end a process of the launch on {node}?",
    killed_for_memory,
    OnNode("journalctl --dmesg --grep=oom --lines=20", become=True),
)
OOM_LOGGED = Question(
    "kernel.oom",
    "does the kernel log of {node} show an OOM kill during the launch?",
    kernel_says_memory,
    OnNode("journalctl --dmesg --grep=oom --lines=20", become=True),
)
OWN_LIMIT = Question("memory.limit", "did the launch reach its memory limit on {node}?", limit_was_reached)
NOT_FOR_MEMORY = Question("rank.killed", "was rank {rank} killed, but not by the OOM killer?", killed_without_oom)
STOPPED = state_of("Tt", "was rank {rank} stopped (state T)?", "rank.stopped")
DISK_WAIT = state_of("D", "did rank {rank} wait for a disk or a driver (state D)?", "rank.disk_wait")
FROZEN = Question("unit.frozen", "is the launch cgroup on {node} frozen?", frozen)
CRASHED = Question("rank.crashed", "did a crash signal such as SIGSEGV end rank {rank}?", crashed)
EXITED = Question("rank.exited", "did rank {rank} exit with an error code?", script_exited)
NFS_WAIT = Question("rank.nfs_wait", "does rank {rank} wait for a network file system?", in_its_stack)

STUCK = ("launch.stalled", "rank.victim")
# Lines about processes that need not be a rank. They count if a log is all that is known.
OF_A_LOG = ("system.killed", "system.actor_died", "system.crashed", "system.oom_killer", "system.oom_limit")
OOM = ("rank.signal", "system.worker_killed", "system.killed", "system.actor_died")

CAUSES = (
    Cause(
        "process.exception",
        scope="process",
        says="rank {rank} on {node} failed with an exception: {what}",
        fix="Read the traceback in the log of rank {rank}",
        symptoms=("rank.exception",),
        places=alone_with_it,
        confirm=(OWN_END,),
        restates=True,
    ),
    Cause(
        "process.exception.everywhere",
        scope="code",
        says="every rank failed with the same exception: {what}",
        fix="Read the traceback in the log of any rank; the exception is the same on all ranks",
        symptoms=("rank.exception",),
        places=shared_by_all,
        confirm=(ALIKE,),
        restates=True,
    ),
    Cause(
        "process.exit",
        scope="process",
        says="rank {rank} on {node} exited: {what}",
        fix="Check the log of rank {rank} to see why the script or a library called exit",
        symptoms=("rank.exit",),
        places=ranks_shown,
        confirm=(EXITED,),
        restates=True,
    ),
    Cause(
        "process.memory.limit",
        scope="node",
        says="the OOM killer ended rank {rank} on {node}, because the launch reached its memory limit",
        fix="Reduce memory use (batch, workers, prefetch), or increase the memory limit of the launch",
        symptoms=(*OOM, "system.oom_limit"),
        places=ranks_by_signal(*KILLED),
        confirm=(OWN_LIMIT,),
        decisive=("system.oom_limit",),
        instead_of=("process.worker", "process.memory.machine", "process.killed"),
    ),
    Cause(
        "process.memory.machine",
        scope="node",
        says="the OOM killer ended rank {rank} on {node}, because the machine ran out of memory",
        fix="Reduce memory use (batch, workers, prefetch). List the processes by memory use",
        command=OnNode("ps -eo pid,user,rss,args --sort=-rss"),
        symptoms=(*OOM, "system.oom_killer"),
        places=ranks_by_signal(*KILLED),
        confirm=(OOM_KILLS, OOM_LOGGED),
        decisive=("system.oom_killer",),
        instead_of=("process.worker", "process.killed"),
    ),
    Cause(
        "process.killed",
        scope="process",
        says="rank {rank} on {node} was killed by SIGKILL; the sender is unknown, but it was not the OOM killer",
        fix="Ask the users of {node}; if auditd runs on {node}, ausearch shows the sender",
        symptoms=("rank.signal", "system.killed"),
        places=ranks_by_signal(*KILLED),
        confirm=(NOT_FOR_MEMORY,),
        refute=(OOM_KILLS, OOM_LOGGED),
    ),
    Cause(
        "process.crash",
        scope="process",
        says="rank {rank} on {node} crashed in native code ({what})",
        fix="Read the faulthandler stack in the log of rank {rank}, and try to reproduce the crash on one node",
        symptoms=("rank.signal", "system.crashed"),
        places=ranks_by_signal(*CRASHES),
        confirm=(CRASHED,),
        restates=True,
    ),
    Cause(
        "process.stopped",
        scope="process",
        says="rank {rank} on {node} is stopped (SIGSTOP, Ctrl-Z or a debugger), and the other ranks wait for it",
        fix="Resume the process with kill -CONT, or find out what stopped it",
        command=OnNode("ps -eo pid,stat,user,args"),
        symptoms=(*STUCK, "rank.signal", "gloo.timeout", "nccl.timeout"),
        places=every_live_rank,
        confirm=(STOPPED,),
    ),
    Cause(
        "process.frozen",
        scope="node",
        says="the launch cgroup on {node} is frozen, and other ranks wait for the ranks on {node}",
        fix="Thaw the unit (systemctl thaw), or find out what froze it",
        symptoms=(*STUCK, "gloo.timeout", "nccl.timeout"),
        places=every_node,
        confirm=(FROZEN,),
        instead_of=("process.stopped",),
    ),
    Cause(
        "process.disk_wait",
        scope="node",
        says="rank {rank} on {node} waits in the kernel for a disk, a network file system or a driver",
        fix="Check the mounts and the kernel log of {node}",
        command=OnNode("journalctl --dmesg --lines=30", become=True),
        symptoms=(*STUCK, "gloo.timeout", "nccl.timeout"),
        places=every_live_rank,
        confirm=(DISK_WAIT,),
        support=(NFS_WAIT,),
    ),
)
