"""A process: its own exception or code, a crash, out of memory, killed, stopped, frozen, waiting for a disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..questions import shots_at, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..evidence import NodeRecord
    from ..model import CauseAnswer, Places, Symptom

CRASHES = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")
KILLED = ("SIGKILL",)
OOM_LINE = ("Out of memory: Killed process", "oom-kill:", "Memory cgroup out of memory")


# ---------------------------------------------------------------- where


def ranks_shown(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Each rank that showed it by itself."""
    del case
    return (CausePlace(one.node, rank=one.rank, what=one.line) for one in by if one.rank is not None and not one.victim)


def ranks_by_signal(*signals: str) -> Places:
    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        del case
        for one in by:
            if (
                one.rank is not None
                and not one.victim
                and (one.id != "rank.signal" or one.about.get("signal") in signals)
            ):
                yield CausePlace(one.node, rank=one.rank, what=one.about.get("signal", ""))

    return places


def alone_with_it(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Each rank with an exception of its own that not all ranks have."""
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


# ---------------------------------------------------------------- what is asked


def ended_by_itself(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    for one in case.all_failures:
        if one.rank == place.rank and one.node == place.node and not one.cascade:
            return yes(one.summary, f"last words of {one.where}", one.when)
    return no("it ended because another one did")


def ended_alike(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if on_every_rank(case, place.what):
        return yes(place.what, f"last words of all {case.launch['world_size']} ranks")
    return no()


def killed_for_memory(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    grown = case.grown(place.node, oom_kills)
    if grown is None:
        of_machine = case.grown(place.node, oom_kills_of_machine)
        if of_machine:
            return yes(
                f"oom_kill of {place.node} as a whole grew by {of_machine}",
                f"memory events of {place.node}'s container",
            )
        if of_machine == 0 or case.grown(place.node, oom_kills_of_all) == 0:
            return no("no process at all was ended for want of memory", f"oom_kill on {place.node}")
        return not_looked(case.why_not(place.node, "unit"))
    if grown > 0:
        return yes(f"oom_kill of the launch's control group grew by {grown}", f"memory.events on {place.node}")
    return no("oom_kill did not grow", f"memory.events on {place.node}")


def oom_kills(record: NodeRecord) -> int | None:
    return record["unit"]["memory_events"].get("oom_kill") if record["unit"] else None


def oom_kills_of_machine(record: NodeRecord) -> int | None:
    """Of a container that is the whole machine."""
    return record["counters"].get("machine.oom_kill")


def oom_kills_of_all(record: NodeRecord) -> int | None:
    """Of the whole machine: where nothing is counted for the launch alone, none for all is none for it."""
    return record["counters"].get("vm.oom_kill")


def limit_was_reached(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Whether it was the launch's own limit, and not the machine's memory."""
    record = case.record(place.node)
    unit = record["unit"] if record else None
    if unit is None:
        return not_looked(case.why_not(place.node, "unit"))
    if unit["memory_max"] is None:
        return no("the launch has no limit of memory", f"memory.max on {place.node}")
    grown = case.grown(place.node, oom_kills)
    return yes(f"memory.max is {unit['memory_max']} bytes", f"control group on {place.node}") if grown else no()


def kernel_says_memory(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.seen["end"].get(place.node)
    if record is None or record["kernel"] is None:
        return not_looked(case.why_not(place.node, "kernel"))
    for line in record["kernel"]:
        if any(words in line["text"] for words in OOM_LINE):
            return yes(line["text"], f"kernel log of {place.node}", line["at"])
    return no("no out-of-memory kill", f"kernel log of {place.node}")


def killed_by_somebody(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """SIGKILL, when what counts kills for memory was looked at and has not counted."""
    counted, logged = killed_for_memory(case, place), kernel_says_memory(case, place)
    words = {counted.word, logged.word}
    if "yes" in words:
        return no("it was for memory")
    if "no" in words:
        seen = counted if counted.word == "no" else logged
        return yes(f"SIGKILL, and {seen.text}", seen.source)
    return not_looked(counted.text)


def frozen(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    shot = case.seen["snapshots"].get(place.node)
    if shot is None:
        return not_looked(f"{place.node} was not looked at before the launch was stopped")
    if shot["frozen"] is None:
        return not_looked(shot["unseen"].get("frozen", "the control group was not looked at"))
    return yes("its control group is frozen", f"cgroup.freeze on {place.node}") if shot["frozen"] else no("not frozen")


def crashed(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    end = case.rank_ends.get(place.rank if place.rank is not None else -1)
    if end is None or end["code"] is None:
        return not_looked("how the rank ended is not known")
    return yes(f"exit code {end['code']} ({place.what})", "the launcher's end of the rank") if end["code"] < 0 else no()


def script_exited(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    end = case.rank_ends.get(place.rank if place.rank is not None else -1)
    if end is None or end["code"] is None:
        return not_looked("how the rank ended is not known")
    return yes(place.what, "the launcher's end of the rank") if end["code"] > 0 else no()


def in_its_stack(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """A D state says where in the kernel; an NFS wait says which kind of disk."""
    for shot in shots_at(case, place):
        if shot["state"] == "D" and ("nfs" in shot["wchan"] or "rpc" in shot["wchan"]):
            return yes(f"rank {shot['rank']} waits in {shot['wchan']}", "/proc before the stop")
    return no()


OWN_END = Question("rank.own_end", "did rank {rank} end by itself, and not because a peer was gone?", ended_by_itself)
ALIKE = Question("ranks.alike", "did every rank end by the same exception?", ended_alike)
OOM_KILLS = Question(
    "memory.oom_kill",
    "did the kernel end a process of the launch on {node} for want of memory?",
    killed_for_memory,
    OnNode("journalctl --dmesg --grep=oom --lines=20", become=True),
)
OOM_LOGGED = Question(
    "kernel.oom",
    "does the kernel log of {node} show an out-of-memory kill during the launch?",
    kernel_says_memory,
    OnNode("journalctl --dmesg --grep=oom --lines=20", become=True),
)
OWN_LIMIT = Question(
    "memory.limit", "was it the launch's own limit of memory that was reached on {node}?", limit_was_reached
)
NOT_FOR_MEMORY = Question(
    "rank.killed", "was rank {rank} killed without a kill for memory being counted on {node}?", killed_by_somebody
)
STOPPED = state_of("Tt", "was rank {rank} stopped (state T)?", "rank.stopped")
DISK_WAIT = state_of("D", "did rank {rank} wait for a disk or a driver (state D)?", "rank.disk_wait")
FROZEN = Question("unit.frozen", "is the launch's control group on {node} frozen?", frozen)
CRASHED = Question("rank.crashed", "did a signal of its own doing end rank {rank}?", crashed)
EXITED = Question("rank.exited", "did rank {rank} end itself with a code?", script_exited)
NFS_WAIT = Question("rank.nfs_wait", "does rank {rank} wait in a network file system?", in_its_stack)

STUCK = ("launch.stalled", "rank.victim")

CAUSES = (
    Cause(
        "process.exception",
        group="process",
        scope="process",
        says="rank {rank} on {node} ended by an exception of its own: {what}",
        fix="Read the traceback in its log",
        symptoms=("rank.exception",),
        places=alone_with_it,
        confirm=(OWN_END,),
    ),
    Cause(
        "process.exception.everywhere",
        group="process",
        scope="code",
        says="every rank ended by the same exception: {what}",
        fix="Read the traceback in any rank's log; no node differs",
        symptoms=("rank.exception",),
        places=shared_by_all,
        confirm=(ALIKE,),
    ),
    Cause(
        "process.exit",
        group="process",
        scope="process",
        says="rank {rank} on {node} ended itself: {what}",
        fix="Read its log: the script, or a library in it, called exit",
        symptoms=("rank.exit",),
        places=ranks_shown,
        confirm=(EXITED,),
    ),
    Cause(
        "process.memory.limit",
        group="process",
        scope="node",
        says="the kernel ended rank {rank} on {node}, because the launch reached its limit of memory there",
        fix="Use less memory (batch, workers, prefetch), or raise the limit of the launch",
        symptoms=("rank.signal", "system.worker_killed"),
        places=ranks_by_signal(*KILLED),
        confirm=(OWN_LIMIT,),
        instead_of=("process.exception", "process.worker", "process.memory.machine", "process.killed"),
    ),
    Cause(
        "process.memory.machine",
        group="process",
        scope="node",
        says="the kernel ended rank {rank} on {node}, because memory ran out there",
        fix="Use less memory (batch, workers, prefetch), and look what else runs there",
        command=OnNode("ps -eo pid,user,rss,args --sort=-rss"),
        symptoms=("rank.signal", "system.worker_killed"),
        places=ranks_by_signal(*KILLED),
        confirm=(OOM_KILLS, OOM_LOGGED),
        instead_of=("process.exception", "process.worker", "process.killed"),
    ),
    Cause(
        "process.killed",
        group="process",
        scope="process",
        says="rank {rank} on {node} was ended by SIGKILL, and not for want of memory; who sent it is not recorded",
        fix="Ask who works on {node}; auditd, if it runs there, knows the sender",
        symptoms=("rank.signal",),
        places=ranks_by_signal(*KILLED),
        confirm=(NOT_FOR_MEMORY,),
        refute=(OOM_KILLS, OOM_LOGGED),
    ),
    Cause(
        "process.crash",
        group="process",
        scope="process",
        says="rank {rank} on {node} crashed in native code ({what})",
        fix="Read its log: Python's faulthandler shows where; try the same step on one node",
        symptoms=("rank.signal",),
        places=ranks_by_signal(*CRASHES),
        confirm=(CRASHED,),
    ),
    Cause(
        "process.stopped",
        group="process",
        scope="process",
        says="rank {rank} on {node} is stopped (SIGSTOP, Ctrl-Z or a debugger), and the others wait for it",
        fix="Let it go on with kill -CONT, or find who stopped it",
        command=OnNode("ps -eo pid,stat,user,args"),
        symptoms=(*STUCK, "rank.signal", "gloo.timeout", "nccl.timeout"),
        places=every_live_rank,
        confirm=(STOPPED,),
    ),
    Cause(
        "process.frozen",
        group="process",
        scope="node",
        says="the launch's control group on {node} is frozen, and the others wait for its ranks",
        fix="Thaw it (systemctl thaw), or find who froze it",
        symptoms=(*STUCK, "gloo.timeout", "nccl.timeout"),
        places=every_node,
        confirm=(FROZEN,),
        instead_of=("process.stopped",),
    ),
    Cause(
        "process.disk_wait",
        group="process",
        scope="node",
        says="rank {rank} on {node} waits in the kernel for a disk, a network file system or a driver",
        fix="Look at the mounts and the kernel log there",
        command=OnNode("journalctl --dmesg --lines=30", become=True),
        symptoms=(*STUCK, "gloo.timeout", "nccl.timeout"),
        places=every_live_rank,
        confirm=(DISK_WAIT,),
        support=(NFS_WAIT,),
    ),
)
