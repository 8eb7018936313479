"""Causes related to exhausted resources: disk, inodes, shared memory, files, tasks, locked memory, CPU time.

The error number shows only that a process reached some limit. The limits and counters of the same node show which
limit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from ...verdict.words import gigabytes
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..questions import printed, probe
from .process import every_node
from .program import others_waited, own_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..case import LaunchCase
    from ..evidence import Disk, NodeRecord
    from ..model import CauseAnswer, Symptom

LITTLE = 1 << 20  # free bytes below which most writes of checkpoints and logs fail
SMALL_SHM = 64 << 20  # default of containers; NCCL and data loaders are known to fail with it
MOSTLY = 0.5  # share of CPU periods in which a cgroup was throttled
LOCKED = "max_locked_memory"
FORK_REJECTED = "fork rejected by pids controller"
TABLE_FULL = "nf_conntrack: table full"
TRIED = re.compile(r"you tried to allocate (\d+) bytes")


def counts(one: Symptom) -> bool:
    """Return whether the symptom is in the last output or in an NCCL warning. With NCCL, only the warning names the
    reason."""
    return bool(one.node) and (one.final or one.id.startswith("nccl."))


def where_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield each node with the symptom. what: the path, if the printed line contains one."""
    del case
    return (CausePlace(one.node, what=one.about.get("path", "")) for one in by if counts(one))


def where_bus_errors(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the nodes with the symptom, ignoring signals other than SIGBUS. Only SIGBUS shows that there was no space
    for mapped memory."""
    return where_met(case, [one for one in by if one.id != "rank.signal" or one.about.get("signal") == "SIGBUS"])


def ranks_that_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    known = [one for one in by if one.rank is not None or case.is_only_a_log]
    return (CausePlace(one.node, rank=one.rank) for one in known if one.node and one.final)


# ---------------------------------------------------------------- disks


def disks_of(case: LaunchCase, place: CausePlace) -> list[Disk] | None:
    """Return the disk that contains the path (by the longest known mount point). If there is no path, return all disks
    except shared memory."""
    record = case.record(place.node)
    if record is None or not record["disks"]:
        return None
    disks = [one for one in record["disks"] if one["use"] != "shm"]
    under = [one for one in disks if place.what.startswith(one["path"].rstrip("/") + "/")]
    longest = max((len(one["path"]) for one in under), default=0)
    return [one for one in under if len(one["path"]) == longest] if place.what else disks


def disk_with(reads: Callable[[Disk], bool], says: str) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        disks = disks_of(case, place)
        if not disks:
            why = f"the disk of {place.what} was not checked" if disks == [] else case.why_not(place.node, "disks")
            return not_looked(why)
        for one in disks:
            if reads(one):
                return yes(says.format(path=one["path"], free=gigabytes(one["free"])), f"file systems of {place.node}")
        return no("; ".join(f"{one['path']} has {gigabytes(one['free'])} free" for one in disks))

    return look


def has_no_room(disk: Disk) -> bool:
    return disk["free"] < LITTLE


def has_no_inodes(disk: Disk) -> bool:
    return disk["inodes_free"] == 0 and disk["free"] >= LITTLE


def takes_no_writes(disk: Disk) -> bool:
    return disk["read_only"]


def shm_is_small(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.record(place.node)
    disk = next((one for one in record["disks"] if one["use"] == "shm"), None) if record else None
    if disk is None:
        return not_looked(case.why_not(place.node, "disks"))
    if disk["free"] < LITTLE or disk["total"] <= SMALL_SHM:
        text = f"{disk['path']} has {disk['free'] >> 20} of {disk['total'] >> 20} MiB free"
        return yes(text, f"file systems of {place.node}")
    return no(f"{disk['path']} has {gigabytes(disk['free'])} free")


# ---------------------------------------------------------------- limits


def limit(name: str, what: str) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    """Return a function that checks whether the launch has this limit. The error number already shows that the limit
    was reached."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        if name not in limits_of(case, place.node):
            return not_looked(case.why_not(place.node, "limits"))
        soft = limits_of(case, place.node)[name][0]
        if soft is None:
            return no(f"{place.node} has no limit on {what}")
        higher = [
            f"{other}: {theirs[0]}"
            for other in case.nodes
            if other != place.node and (theirs := (limits_of(case, other)).get(name)) and differs(theirs[0], soft)
        ]
        others = f" ({', '.join(higher)})" if higher else ""
        return yes(f"the limit on {what} is {soft}{others}", f"limits of the launch on {place.node}")

    return look


def printed_unlimited(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if "nccl.locked_unlimited" in printed(case).get(place.node, ()):
        return yes("ulimit -l is unlimited", f"output of NCCL on {place.node}")
    return not_looked("NCCL did not print the limit")


def limits_of(case: LaunchCase, node: str) -> dict[str, list[int | None]]:
    """Return the limits recorded at the end of the launch, or at its start if the unit's main process had already
    exited at the end."""
    records = (case.seen["end"].get(node), case.seen["start"].get(node))
    return next((record["limits"] for record in records if record and record["limits"]), {})


def differs(theirs: int | None, soft: int) -> bool:
    return theirs is None or theirs > soft


def tasks_rejected(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    grown = case.grown(place.node, pids_refused)
    if grown:
        return yes(f"the launch cgroup rejected {grown} tasks", f"pids.events on {place.node}")
    of_all = case.grown(place.node, lambda record: record["counters"].get("machine.pids_refused"))
    if of_all:
        return yes(f"the task limit of {place.node} rejected {of_all} tasks", f"pids.events on {place.node}")
    record = case.seen["end"].get(place.node)
    for line in (record["kernel"] if record else None) or []:
        if FORK_REJECTED in line["text"]:
            return yes(line["text"], f"kernel log of {place.node}", line["at"])
    if grown is None and of_all is None:
        return not_looked(case.why_not(place.node, "unit"))
    return no("no task was rejected")


def pids_refused(record: NodeRecord) -> int | None:
    return record["unit"]["pids_refused"] if record["unit"] else None


def is_throttled(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the launch was throttled on this node more than twice as much as on any other node."""
    if own_end(case) or not others_waited(case):
        return no("a rank had already failed, or no rank timed out")
    share = throttled(case, place.node)
    if share is None:
        return not_looked(case.why_not(place.node, "unit"))
    others = [each for name in case.nodes if name != place.node and (each := throttled(case, name)) is not None]
    if share < MOSTLY or not others or max(others) >= share / 2:
        return no(f"the launch was throttled in {share:.0%} of its CPU periods")
    record = case.record(place.node)
    cores = record["unit"]["cpu_max"] if record and record["unit"] else None
    of = f" of {cores:g} cores" if cores else ""
    return yes(
        f"the CPU limit{of} throttled the launch in {share:.0%} of its periods (other nodes: up to {max(others):.0%})",
        f"cpu.stat on {place.node}",
    )


def throttled(case: LaunchCase, node: str) -> float | None:
    """Return the share of CPU periods that were throttled: the larger of the values of the unit and of the container,
    if the node is a container."""
    shares = []
    for count in (of_unit, of_machine):
        periods = case.grown(node, count("nr_periods"))
        times = case.grown(node, count("nr_throttled"))
        if times is not None:
            shares.append(times / periods if periods else 0.0)
    return max(shares, default=None)


def of_unit(name: str) -> Callable[[NodeRecord], int | None]:
    return lambda record: record["unit"]["cpu"].get(name) if record["unit"] else None


def of_machine(name: str) -> Callable[[NodeRecord], int | None]:
    return lambda record: record["counters"].get(f"machine.{name}")


def conntrack_dropped(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if own := own_end(case):
        return no(f"{own} had failed first")
    record = case.seen["end"].get(place.node)
    for line in (record["kernel"] if record else None) or []:
        if TABLE_FULL in line["text"]:
            return yes(line["text"], f"kernel log of {place.node}", line["at"])
    counters = record["counters"] if record else {}
    if "conntrack.count" not in counters or "conntrack.max" not in counters:
        return not_looked(case.why_not(place.node, "counters"))
    grown = case.grown(place.node, lambda one: one["counters"].get("conntrack.drop"))
    count, most = counters["conntrack.count"], counters["conntrack.max"]
    if grown and most and count >= 0.9 * most:
        return yes(f"{grown} connections were dropped, with {count} of {most} tracked", f"conntrack on {place.node}")
    return no(f"{count} of {most} connections are tracked")


def asked_too_much(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.record(place.node)
    total = record["memory"].get("total") if record else None
    asked = 0
    for one in case.all_failures:
        if one.rank == place.rank and (match := TRIED.search(f"{one.summary}\n{one.traceback}")):
            asked = int(match[1])
    if not asked:
        return not_looked("the requested amount is unknown")
    if total is None:
        return not_looked(case.why_not(place.node, "memory"))
    if asked > total:
        return yes(f"requested: {gigabytes(asked)}; memory of {place.node}: {gigabytes(total)}", "last output")
    return no(f"requested: {gigabytes(asked)}; {place.node} has more")


DISKS = OnNode("df -h")
NO_ROOM = Question("disk.full", "is the disk on {node} full?", disk_with(has_no_room, "{path} has {free} free"), DISKS)
NO_INODES = Question(
    "disk.inodes",
    "is the file system on {node} out of inodes?",
    disk_with(has_no_inodes, "{path} has {free} free, but no free inodes"),
    OnNode("df -i"),
)
READ_ONLY = Question(
    "disk.read_only",
    "is the file system on {node} read-only?",
    disk_with(takes_no_writes, "{path} is read-only"),
    OnNode("findmnt --options ro"),
)
DISK_READ_ONLY = probe("os.disk.read_only", "did the kernel remount a file system on {node} read-only?")
SHM = Question("shm.small", "is /dev/shm on {node} too small or full?", shm_is_small, OnNode("df -h /dev/shm"))
SHM_SMALL = probe("os.shm.small", "is /dev/shm on {node} too small for a launch?")
SHM_UNUSABLE = probe("os.shm.unusable", "is /dev/shm on {node} not writable?")
FILES = Question("limit.files", "is the number of open files limited on {node}?", limit("max_open_files", "open files"))
REFUSED = Question(
    "limit.tasks",
    "did {node} reject new tasks of the launch?",
    tasks_rejected,
    OnNode("systemctl show --property=DefaultTasksMax"),
)
PROCESSES = probe("os.limits.processors", "is the process limit on {node} too low?")
TASKS = probe("os.limits.tasks", "is the task limit of systemd units on {node} too low?")
LIMITS = OnNode("prlimit --memlock")
MEMLOCK = Question(
    "limit.memlock", "is locked memory of the launch limited on {node}?", limit(LOCKED, "locked memory"), LIMITS
)
UNLIMITED = Question("said.memlock", "did NCCL find no limit on locked memory on {node}?", printed_unlimited)
MEMLOCK_FOUND = probe("os.limits.memlock", "is the limit on locked memory of {node} too low?")
THROTTLED = Question("cpu.held_back", "did a CPU limit throttle the launch on {node}?", is_throttled)
CONNTRACK = Question(
    "conntrack.full",
    "did {node} drop connections because its connection tracking table was full?",
    conntrack_dropped,
    OnNode("sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max"),
)
TOO_MUCH = Question("memory.asked", "did rank {rank} request more memory than {node} has?", asked_too_much)

NO_SPACE = ("system.no_space", "system.write_failed")
WAITING = ("launch.stalled", "rank.victim", "gloo.timeout", "nccl.timeout")

CAUSES = (
    Cause(
        "resources.disk",
        scope="node",
        says="a disk on {node} is full",
        fix="Write to another disk, or free disk space. Show the free space of all disks",
        command=DISKS,
        symptoms=NO_SPACE,
        places=where_met,
        confirm=(NO_ROOM,),
    ),
    Cause(
        "resources.inodes",
        scope="node",
        says="a file system on {node} has free space but no free inodes, because it contains too many files",
        fix="Write to another file system, or delete files. Show the free inodes of all file systems",
        command=OnNode("df -i"),
        symptoms=NO_SPACE,
        places=where_met,
        confirm=(NO_INODES,),
    ),
    Cause(
        "resources.read_only",
        scope="node",
        says="a file system on {node} is read-only",
        fix="Repair the file system and mount it again; check the kernel log for disk errors",
        command=OnNode("journalctl --dmesg --lines=30", become=True),
        symptoms=("system.read_only",),
        places=where_met,
        confirm=(READ_ONLY, DISK_READ_ONLY),
    ),
    Cause(
        "resources.shared_memory",
        scope="node",
        says="the shared memory of {node} (/dev/shm) is too small or full",
        fix="Increase the size of /dev/shm (--shm-size for a container), delete leftover files, or use fewer workers",
        command=OnNode("df -h /dev/shm"),
        symptoms=(
            *("system.shared_memory", "system.worker_bus_error", "system.bus_error", "nccl.shared_memory"),
            *("rank.signal", "nccl.system_error", "system.worker_killed"),
        ),
        places=where_bus_errors,
        confirm=(SHM, SHM_SMALL, SHM_UNUSABLE),
        instead_of=("process.crash",),
    ),
    Cause(
        "resources.files",
        scope="process",
        says="rank {rank} on {node} reached its limit on open files",
        fix="Increase the limit (launch_users_nofile for user launches), or look for files that are never closed",
        symptoms=("system.files",),
        places=ranks_that_met,
        confirm=(FILES,),
    ),
    Cause(
        "resources.tasks",
        scope="node",
        says="{node} rejected new processes or threads of the launch",
        fix="Increase the task limit, or use fewer workers and threads (OMP_NUM_THREADS)",
        symptoms=("system.tasks",),
        places=where_met,
        confirm=(REFUSED, PROCESSES, TASKS),
    ),
    Cause(
        "resources.locked_memory",
        scope="node",
        says="the limit on locked memory of the launch on {node} is too low for RDMA",
        fix="Remove the limit on locked memory (site.yml --tags baseline does this). Show the limits of the user",
        command=LIMITS,
        symptoms=("nccl.locked_memory",),
        places=where_met,
        confirm=(MEMLOCK, MEMLOCK_FOUND),
        refute=(UNLIMITED,),
    ),
    Cause(
        "resources.processor_time",
        scope="node",
        says="a CPU limit throttled the launch on {node}, so the other nodes had to wait",
        fix="Increase CPUQuota of the launch unit or of its parent slice",
        symptoms=WAITING,
        places=every_node,
        confirm=(THROTTLED,),
        instead_of=("program.straggler",),
    ),
    Cause(
        "resources.conntrack",
        scope="node",
        says="{node} dropped connections because its connection tracking table was full",
        fix="Increase net.netfilter.nf_conntrack_max, or exclude the training network from connection tracking",
        symptoms=(*WAITING, "store.connect.timeout", "gloo.connect.timeout", "gloo.closed"),
        places=every_node,
        confirm=(CONNTRACK,),
    ),
    Cause(
        "resources.memory",
        scope="process",
        says="rank {rank} on {node} requested more memory at once than {node} has",
        fix="Check the size in the message; a batch, sequence or buffer is probably larger than intended",
        symptoms=("system.memory",),
        places=ranks_that_met,
        confirm=(TOO_MUCH,),
    ),
)
