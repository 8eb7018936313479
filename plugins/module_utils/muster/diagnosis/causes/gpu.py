"""Causes of GPU errors: missing, hidden, in use, not supported by torch, out of memory, or faulty.

The symptoms are CUDA errors. A hardware fault is confirmed by the kernel log of the launch, the node records or later
checks of nccl_health.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

from ...health.xids import OF_PROGRAMS, XID_LINE, XIDS
from ...verdict.commands import OnNode, playbook
from ...verdict.words import gigabytes, plural
from ..drift import environment, value_among
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..questions import probe
from .process import every_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..case import LaunchCase
    from ..evidence import Gpu
    from ..model import CauseAnswer, Symptom


VISIBLE = "CUDA_VISIBLE_DEVICES"
LITTLE_MEMORY = 0.05  # share of available memory
MOST_GPUS = 16
# Values that hide GPUs: empty, an invalid index, a single GPU, or the first GPUs.
ONE_OR_NONE = ("", "-1", "NoDevFiles", *(str(number) for number in range(MOST_GPUS)))
FIRST_FEW = tuple(accumulate((str(number) for number in range(MOST_GPUS)), lambda one, two: f"{one},{two}"))
# Causes that a rank's output alone makes likely; a more specific cause replaces them.
BY_WORDS = ("gpu.number", "gpu.none_seen")
SMI = OnNode("nvidia-smi")
LIST = OnNode("nvidia-smi -L")
MEMINFO = OnNode("cat /proc/meminfo")
LOG = OnNode("journalctl --dmesg --grep=NVRM --lines=20", become=True)


def where_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield each node where a rank ended with the error or NCCL printed a warning."""
    del case
    return (CausePlace(one.node) for one in by if one.node and (one.final or one.id.startswith("nccl.")))


def gpus(case: LaunchCase, node: str) -> list[Gpu] | None:
    record = case.record(node)
    return record["gpus"] if record else None


# ---------------------------------------------------------------- presence


def none_there(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    found = gpus(case, place.node)
    if found is None:
        return not_looked(case.why_not(place.node, "gpus"))
    return no(f"{len(found)} GPUs are present") if found else yes("no GPU is listed", f"nvidia-smi on {place.node}")


def fewer_than_ranks(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    found, ranks = gpus(case, place.node), case.ranks_of(place.node)
    if found is None:
        return not_looked(case.why_not(place.node, "gpus"))
    if len(found) < len(ranks):
        return yes(f"{len(ranks)} ranks but {len(found)} GPUs", f"nvidia-smi on {place.node} and the launch plan")
    return no(f"{len(found)} GPUs are enough for {len(ranks)} ranks")


def hidden(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    known, found = environment(case, place.node), gpus(case, place.node)
    if known is None:
        return not_looked(case.why_not(place.node, "program"))
    if VISIBLE not in known:
        return no(f"{VISIBLE} is not set")
    value = value_among(case, place.node, VISIBLE, (*ONE_OR_NONE, *FIRST_FEW))
    if value is None:
        return not_looked(f"{VISIBLE} is set on {place.node}, but its value is unknown (only a digest is stored)")
    shown = sum(part.isdigit() and (found is None or int(part) < len(found)) for part in value.split(","))
    ranks = len(case.ranks_of(place.node))
    if shown < ranks:
        return yes(
            f"{VISIBLE} leaves {plural(shown, 'GPU')} for {plural(ranks, 'rank')}",
            f"launch environment on {place.node}",
        )
    return no(f"{VISIBLE} leaves {plural(shown, 'GPU')}")


# ---------------------------------------------------------------- faults


def xid_logged(hardware: bool) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    """Return a function that checks whether the kernel logged an Xid during the launch. hardware: whether to look for
    an Xid of a hardware fault or of a program error."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        record = case.seen["end"].get(place.node)
        if record is None or record["kernel"] is None:
            return not_looked(case.why_not(place.node, "kernel"))
        for line in record["kernel"]:
            match = XID_LINE.search(line["text"])
            if match and is_fault(int(match[2])) is hardware:
                return yes(line["text"], f"kernel log of {place.node}", line["at"])
        return no("no Xid of this kind was logged during the launch", f"kernel log of {place.node}")

    return look


def is_fault(number: int) -> bool | None:
    """Return True for a hardware fault, False for a program error, None for an Xid that is unknown or should only be
    monitored."""
    if number not in XIDS:
        return False if number in OF_PROGRAMS else None
    return None if XIDS[number].action == "watch" else True


def ecc_grew(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    pair = case.both(place.node)
    if pair is None or pair[0]["gpus"] is None or pair[1]["gpus"] is None:
        return not_looked(case.why_not(place.node, "gpus"))
    before = {gpu["uuid"]: gpu["ecc"] for gpu in pair[0]["gpus"]}
    for gpu in pair[1]["gpus"]:
        was = before.get(gpu["uuid"])
        if gpu["ecc"] is not None and was is not None and gpu["ecc"] > was:
            return yes(f"GPU {gpu['index']} had {gpu['ecc'] - was} new memory errors", f"nvidia-smi on {place.node}")
    return no("no GPU had new uncorrected memory errors")


def free_memory(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.record(place.node)
    available, total = (record["memory"].get(name) if record else None for name in ("available", "total"))
    if not available or not total:
        return not_looked(case.why_not(place.node, "memory"))
    said = f"{gigabytes(available)} of {gigabytes(total)} available"
    source = f"memory of {place.node}"
    return yes(said, source) if available < LITTLE_MEMORY * total else no(said, source)


NONE_THERE = Question("gpu.none", "does {node} have no GPU?", none_there, SMI)
FEWER = Question("gpu.fewer", "does {node} have fewer GPUs than ranks?", fewer_than_ranks, SMI)
HIDDEN = Question(
    "gpu.hidden",
    "does CUDA_VISIBLE_DEVICES hide GPUs from the ranks on {node}?",
    hidden,
    by_hand=OnNode(f"printenv {VISIBLE}"),
)
XID = Question("gpu.xid.hardware", "did {node} log an Xid of a GPU fault?", xid_logged(True), LOG)
XID_OF_PROGRAM = Question("gpu.xid.program", "did {node} log an Xid of a program error?", xid_logged(False), LOG)
ECC_GREW = Question("gpu.ecc.grew", "did a GPU of {node} have new uncorrected memory errors?", ecc_grew, SMI)


def found(check: str, what: str) -> Question:
    return probe(check, f"did the health checks report {what} on {{node}}?")


CAUSES = (
    Cause(
        "gpu.absent",
        scope="node",
        says="a GPU of {node} is missing, or the driver cannot access it",
        fix="Reboot the node. If the GPU is still missing, check the kernel log",
        command=LOG,
        symptoms=("cuda.no_gpu", "cuda.lost", "cuda.invalid_device", "nccl.cuda_error"),
        places=where_met,
        confirm=(
            *(NONE_THERE, found("gpu.lost", "a lost GPU"), found("gpu.driver.not_loaded", "a missing driver")),
            found("sw.torch.gpus", "that torch detects too few GPUs"),
        ),
        decisive=("cuda.lost",),
        instead_of=("gpu.fewer_than_ranks", *BY_WORDS),
    ),
    Cause(
        "gpu.fewer_than_ranks",
        scope="config",
        says="the launch starts more ranks on {node} than the node has GPUs",
        fix="Start at most one rank per GPU (cluster_nproc_per_node). List the GPUs of the node",
        command=SMI,
        symptoms=("cuda.invalid_device", "cuda.too_few"),
        places=where_met,
        confirm=(FEWER, found("gpu.count.differs", "an unexpected number of GPUs")),
        instead_of=BY_WORDS,
    ),
    Cause(
        "gpu.hidden",
        scope="config",
        says="CUDA_VISIBLE_DEVICES hides GPUs from the ranks on {node}",
        fix="Remove CUDA_VISIBLE_DEVICES from launch_env and from the script",
        symptoms=("cuda.invalid_device", "cuda.no_gpu", "cuda.too_few"),
        places=where_met,
        confirm=(HIDDEN,),
        instead_of=("gpu.fewer_than_ranks", "gpu.absent", *BY_WORDS),
    ),
    Cause(
        "gpu.number",
        scope="config",
        says="a rank on {node} uses a GPU index that is out of range of its visible GPUs",
        fix="Pass LOCAL_RANK, not RANK, to torch.cuda.set_device, start at most one rank per GPU, and unset"
        " CUDA_VISIBLE_DEVICES. List the GPUs of the node",
        command=LIST,
        symptoms=("cuda.invalid_device",),
        places=where_met,
        confirm=(),
        decisive=("cuda.invalid_device",),
        restates=True,
    ),
    Cause(
        "gpu.none_seen",
        scope="node",
        says="ranks on {node} detect no GPU: no GPU is present, the driver is not loaded, or the GPUs are hidden",
        fix="If the node has GPUs, check CUDA_VISIBLE_DEVICES in launch_env and the script; if not, check the driver."
        " List the GPUs of the node",
        command=LIST,
        symptoms=("cuda.no_gpu",),
        places=where_met,
        confirm=(),
        decisive=("cuda.no_gpu",),
        restates=True,
    ),
    Cause(
        "gpu.taken",
        scope="node",
        says="another process has exclusive access to a GPU on {node}",
        fix="Set the compute mode to Default, or find and end the other process",
        command=SMI,
        symptoms=("cuda.busy",),
        places=where_met,
        confirm=(found("gpu.compute_mode", "an exclusive compute mode"),),
        support=(found("gpu.process.foreign", "a GPU process outside the launch"),),
    ),
    Cause(
        "gpu.no_code",
        scope="node",
        says="the torch build or an extension on {node} does not support the GPUs of the node",
        fix="Rebuild extensions for the GPU, and select a torch release or CUDA variant that supports it",
        command=playbook("playbooks/plan.yml"),
        symptoms=("cuda.no_code",),
        places=where_met,
        confirm=(found("sw.torch.no_code", "a torch build without code for the GPUs"),),
        decisive=("cuda.no_code",),
    ),
    Cause(
        "gpu.driver.old",
        scope="node",
        says="the driver on {node} is too old for its torch build",
        fix="Install the driver version from the plan",
        command=playbook("site.yml", tags="gpu_stack"),
        symptoms=("cuda.driver_old", "cuda.driver_mismatch", "nccl.cuda_error"),
        places=where_met,
        confirm=(found("sw.cuda.driver_old", "a driver that is too old"),),
        decisive=("cuda.driver_old",),
    ),
    Cause(
        "gpu.driver.mismatch",
        scope="node",
        says="the kernel module and the libraries of the driver on {node} have different versions",
        fix="Reboot the node, and check the version of the loaded module",
        command=OnNode("cat /proc/driver/nvidia/version"),
        symptoms=("cuda.driver_mismatch", "cuda.no_gpu", "cuda.driver_old", "cuda.failed", "nccl.cuda_error"),
        places=where_met,
        confirm=(found("gpu.driver.mismatch", "a driver version mismatch"),),
        decisive=("cuda.driver_mismatch",),
        instead_of=("gpu.absent", "gpu.none_seen"),
    ),
    Cause(
        "gpu.ecc",
        scope="node",
        says="a GPU of {node} had uncorrectable memory errors",
        fix="Reset the GPU while it is idle, and replace the GPU if the errors recur",
        command=SMI,
        symptoms=("cuda.ecc", "nccl.cuda_error"),
        places=where_met,
        confirm=(ECC_GREW, found("gpu.ecc.uncorrected", "an uncorrected memory error")),
        decisive=("cuda.ecc",),
        instead_of=("gpu.fault",),
    ),
    Cause(
        "gpu.fault",
        scope="node",
        says="a GPU of {node} failed during the launch",
        fix="Reset the GPU or reboot the node, and look up the Xid in the kernel log",
        command=LOG,
        symptoms=(
            *("cuda.failed", "cuda.ecc", "cuda.nvlink", "cuda.illegal_access", "cuda.lost", "cuda.busy"),
            *("nccl.cuda_error", "nccl.timeout", "nccl.heartbeat", "nccl.remote", "system.xid"),
        ),
        places=every_node,
        confirm=(XID,),
        support=(found("gpu.xid", "an Xid"), found("gpu.reset.needed", "a GPU that needs a reset")),
        instead_of=("program.illegal_access", "program.straggler", "program.alone"),
    ),
    Cause(
        "gpu.memory.unified",
        scope="node",
        says="{node} has too little free memory (MemFree) for the driver, as if CPU and GPU share it (GB10)",
        fix="Leave more free memory: smaller GPU memory share, fewer processes, drop the page cache. Check MemFree and"
        " CmaFree",
        command=MEMINFO,
        symptoms=("system.unified_memory", "nccl.locked_memory"),
        places=where_met,
        confirm=(Question("memory.free", "was the free memory of {node} used up?", free_memory, MEMINFO),),
    ),
    Cause(
        "program.illegal_access",
        scope="code",
        says="a CUDA kernel of the program accessed invalid memory on {node} (NVIDIA calls this an application error)",
        fix="Run the program with CUDA_LAUNCH_BLOCKING=1 in launch_env, or under compute-sanitizer",
        symptoms=("cuda.illegal_access", "cuda.failed", "system.xid.program"),
        places=where_met,
        confirm=(XID_OF_PROGRAM,),
        refute=(XID,),
        decisive=("cuda.illegal_access",),
    ),
)


MUCH = 0.2  # share of GPU memory held by another process
MOST_OF_IT = 0.6  # share of GPU memory held by the process that requested more
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = r"(?P<{0}>[\d.]+) (?P<{0}_unit>[KMGT]iB)"
TOTAL = re.compile(r"total capaci?ty of " + SIZE.format("size") + r"|; " + SIZE.format("older") + r" total capacity")
THIS = re.compile(
    r"this process has " + SIZE.format("size") + r"|; " + SIZE.format("older") + r" (?:already )?allocated"
)
ASKED = re.compile(r"Tried to allocate " + SIZE.format("size"))
NUMBER = re.compile(r"GPU (\d+)(?: has a total|;)")
OTHER = re.compile(r"Process (?P<pid>\d+) has " + SIZE.format("size") + r" memory in use")
FULL = ("cuda.out_of_memory", "cuda.not_enough_memory")


# ---------------------------------------------------------------- gpu memory

# GPU memory is full: because of the rank, because of other processes, or for an unknown reason.
#
# The message of torch contains the amounts. The node records show the other processes.


def ranks_that_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    return (
        CausePlace(one.node, rank=one.rank)
        for one in by
        if one.node and one.counts and (one.rank is not None or case.is_only_a_log)
    )


def out_of_memory_words(case: LaunchCase, place: CausePlace) -> str:
    return next((f"{one.summary}\n{one.traceback}" for one in case.all_failures if one.rank == place.rank), "")


def amount(match: re.Match[str] | None) -> float:
    if match is None:
        return 0.0
    name = "size" if match["size"] is not None else "older"
    return float(match[name]) * UNITS[match[f"{name}_unit"]]


def of_its_own(much: bool) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    """Return a function that checks whether the rank itself held most of the GPU memory. If `much` is false, the result
    is reversed."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        words = out_of_memory_words(case, place)
        total, mine = amount(TOTAL.search(words)), amount(THIS.search(words))
        if not total or not mine:
            return not_looked("the message does not contain the amounts of memory")
        said = f"rank {place.rank} held {gigabytes(mine)} of {gigabytes(total)} GPU memory"
        return yes(said, f"last output of rank {place.rank}") if (mine >= MOST_OF_IT * total) == much else no(said)

    return look


def beyond_the_whole(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the memory that the rank held plus the memory it requested exceeds the GPU. If so, other processes
    are not the cause."""
    words = out_of_memory_words(case, place)
    total, mine, asked = (amount(one.search(words)) for one in (TOTAL, THIS, ASKED))
    if not total or not asked:
        return not_looked("the message does not contain the amounts of requested and total memory")
    said = f"requested: {gigabytes(asked)}; held: {gigabytes(mine)}; total: {gigabytes(total)}"
    return yes(said, f"last output of rank {place.rank}") if mine + asked > total else no(said)


def full_of_others(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    words = out_of_memory_words(case, place)
    total, own = amount(TOTAL.search(words)), {shot["pid"] for _, shot in case.shots.values()}
    for match in OTHER.finditer(words):
        if total and amount(match) >= MUCH * total and int(match["pid"]) not in own and own:
            text = f"process {match['pid']} held {gigabytes(float(match['size']) * UNITS[match['size_unit']])}"
            return yes(text, f"last output of rank {place.rank}")
    return not_looked("the other processes could not be identified") if OTHER.search(words) and not own else no()


def taken_before(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    start, number = case.seen["start"].get(place.node), NUMBER.search(out_of_memory_words(case, place))
    if start is None or start["gpus"] is None:
        return not_looked(case.why_not(place.node, "gpus"))
    if number is None or VISIBLE in (environment(case, place.node) or {}):
        return not_looked("it is unknown which GPU was full")
    for gpu in start["gpus"]:
        used, total = gpu["memory_used"], gpu["memory_total"]
        if gpu["index"] == int(number[1]) and used and total and used >= MUCH * total:
            by = f" by process {gpu['processes'][0]}" if gpu["processes"] else ""
            return yes(
                f"GPU {gpu['index']} had {gigabytes(used)} in use{by}", f"nvidia-smi on {place.node} at the start"
            )
    return no("most of the GPU memory was free when the launch started")


OWN_MEMORY = Question(
    "gpu.memory.own", "did rank {rank} itself fill the memory of its GPU?", of_its_own(True), by_words=True
)
LITTLE_OF_ITS_OWN = Question(
    "gpu.memory.little", "did rank {rank} hold only a small part of the GPU memory?", of_its_own(False)
)
BEYOND = Question(
    "gpu.memory.beyond", "did rank {rank} need more memory than its GPU has?", beyond_the_whole, by_words=True
)
OTHERS_MEMORY = Question("gpu.memory.others", "did other processes hold much of the GPU memory?", full_of_others, SMI)
TAKEN_BEFORE = Question("gpu.memory.before", "was GPU memory on {node} in use before the launch?", taken_before, SMI)

OF_MEMORY = (
    Cause(
        "gpu.memory.others",
        scope="node",
        says="other processes hold memory of the GPU of rank {rank} on {node}",
        fix="Wait for the other processes, or ask their owners to end them. List the processes on the GPUs",
        command=SMI,
        symptoms=FULL,
        places=ranks_that_met,
        confirm=(OTHERS_MEMORY, TAKEN_BEFORE),
        support=(
            found("gpu.process.foreign", "a GPU process outside the launch"),
            found("gpu.memory.held", "GPU memory that no visible process uses"),
            LITTLE_OF_ITS_OWN,
        ),
        refute=(BEYOND,),
        instead_of=("gpu.memory.own", "gpu.memory.full"),
    ),
    Cause(
        "gpu.memory.own",
        scope="process",
        says="rank {rank} on {node} needs more memory than its GPU has",
        fix="Use smaller batches or sequences, mixed precision, or activation checkpointing",
        symptoms=("cuda.out_of_memory",),
        places=ranks_that_met,
        confirm=(OWN_MEMORY, BEYOND),
        instead_of=("gpu.memory.full",),
    ),
    Cause(
        "gpu.memory.full",
        scope="process",
        says="the GPU memory of rank {rank} on {node} was filled by the rank itself or by other processes",
        fix="Use smaller batches, or end the other processes on the GPU. List the processes",
        command=SMI,
        symptoms=FULL,
        places=ranks_that_met,
        confirm=(),
        decisive=FULL,
        restates=True,
    ),
)
