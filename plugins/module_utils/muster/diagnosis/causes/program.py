"""Causes in the program: collectives, sizes, models or numbers of steps that differ between ranks, and stragglers.

If the ranks execute different operations, the code is at fault and the cause names no node. A cause names a rank only
if this rank alone blocks the others, or exited before the others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...launch.endings import Ending
from ...verdict.commands import OnNode
from .. import progress
from ..case import once
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..questions import printed, shots_at
from .process import DISK_WAIT, FROZEN, STOPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...launch.failure import Failure
    from ..case import LaunchCase
    from ..evidence import Collective
    from ..model import CauseAnswer, Places, Symptom


INCONSISTENT = "program.inconsistent"
WAITED = re.compile(r"Timed out waiting|[Ww]atchdog|timed? ?out|failed to pass monitoredBarrier")
AT_BARRIER = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")


def compared(name: str, *, same: str = "") -> Places:
    """Return a function that yields a place with what the ranks printed about their collective, if it differs. same: a
    part that must not differ."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        del case
        printed = {one.about["rank"]: one.about for one in by if one.id == INCONSISTENT}
        values, others = ({about.get(part, "") for about in printed.values()} for part in (name, same))
        ranks = ", ".join(f"rank {rank}: {about.get(name, '')}" for rank, about in sorted(printed.items()))
        yield CausePlace(what=ranks if len(values) > 1 and len(others) == 1 else "")

    return places


def was_printed(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del case
    return yes(place.what, "output of the ranks (TORCH_DISTRIBUTED_DEBUG)") if place.what else no()


def in_the_code(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case, by
    yield CausePlace()


@once
def others_waited(case: LaunchCase) -> bool:
    """Return whether ranks waited until a timeout or a stall, and not merely until a peer exited."""
    launch = case.launch
    if launch["live"] or launch["ending"] == Ending.STALLED.name:
        return True
    if any(one.stuck for one in progress.progress(case)) or timeout_was_printed(case):
        return True
    return any(WAITED.search(f"{one.summary}\n{one.traceback}") for one in case.all_failures if one.cascade)


@once
def own_end(case: LaunchCase) -> str:
    """Return a rank that failed by itself; "" if no rank did. Such a failure explains waiting peers and lost
    connections."""
    failed = (one for one in case.all_failures if one.rank is not None and not one.cascade)
    return next((one.where for one in failed if not was_aborted(case, one)), "")


def was_aborted(case: LaunchCase, failure: Failure) -> bool:
    """Return whether, in a log alone, NCCL's watchdog probably aborted the rank after a timeout."""
    return failure.signal == "SIGABRT" and timeout_was_printed(case)


def timeout_was_printed(case: LaunchCase) -> bool:
    return case.is_only_a_log and "nccl.timeout" in set().union(*printed(case).values())


def differ(of: Callable[[Collective], str]) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        del place
        known = [one for one in progress.progress(case) if one.calls]
        if len(known) < 2:
            return not_looked("fewer than two ranks recorded their collectives")
        found = progress.difference(case, of) or (progress.apart(case) if of is progress.operation else "")
        if found:
            return yes(found, known[0].source)
        if not any(of(call) for one in known for call in one.calls.values()):
            return not_looked("this was not recorded")
        if known[0].source == progress.BY_WATCHDOG and len(known) < case.launch["world_size"]:
            return not_looked(f"only {len(known)} of {case.launch['world_size']} ranks printed their collective")
        return no("the recorded collectives of all ranks match")

    return look


def is_behind(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if own := own_end(case):
        return no(f"{own} had failed first")
    if not others_waited(case):
        return no("no rank timed out")
    known = {one.rank: one for one in progress.progress(case)}
    if place.rank not in known or len(known) < 2:
        return not_looked(
            next((one["flight_why"] for one in shots_at(case, place) if one["flight_why"]), "no flight recorder")
        )
    first, one = progress.furthest(case), known[place.rank]
    if first is None or one.enqueued >= first.enqueued:
        return no(f"rank {one.rank} had started {one.enqueued} collectives, as many as any other rank")
    if one.within is None:
        return not_looked(f"rank {one.rank} is behind, but without a stack it is unknown whether it waits")
    if one.within:
        return no(f"rank {one.rank} is behind, but also waits in a collective")
    here = next((at(shot["stack"]) for shot in shots_at(case, place) if shot["stack"]), "")
    where = f", and was at {here}" if here else ""
    return yes(f"started {one.enqueued} collectives (rank {first.rank}: {first.enqueued}){where}", one.source)


def ranks_behind(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the ranks that are behind according to flight recorders or watchdogs; if there are none, all running
    ranks, or a place without a rank for a log alone."""
    del by
    known = {**progress.behind(case), **progress.silent(case)}
    ranks = known or dict.fromkeys(case.shots)
    found = [CausePlace(case.node_of(rank), rank=rank) for rank in ranks]
    return iter(found or ([CausePlace()] if case.is_only_a_log else []))


def did_not_time_out(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the watchdogs of the other ranks timed out, but not that of this rank."""
    said = progress.silent(case).get(-1 if place.rank is None else place.rank)
    if said is None:
        return not_looked("no rank is silent while the others timed out")
    return yes(f"{said}, rank {place.rank} did not", progress.BY_WATCHDOG)


def elsewhere(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether, according to the stacks, this rank is the only one that is not in a collective."""
    if own_end(case) or not others_waited(case):
        return no("a rank had already failed, or no rank timed out")
    known = {one.rank: one.enqueued for one in progress.progress(case)}
    if len(known) > 1 and place.rank in known and known[place.rank] == max(known.values()):
        return no("the rank had started as many collectives as any other rank")
    stacks = {rank: shot["stack"] for rank, (_, shot) in case.shots.items() if shot["stack"]}
    if place.rank not in stacks or len(stacks) < 2:
        return not_looked(next((one["stack_why"] for one in shots_at(case, place) if one["stack_why"]), "no stacks"))
    outside = [rank for rank, stack in stacks.items() if not waits(stack)]
    if outside != [place.rank]:
        return no(f"{len(outside)} of {len(stacks)} ranks were outside a collective")
    return yes(f"the rank was at {at(stacks[place.rank])}, all other ranks were in a collective", "stack snapshots")


def at(stack: list[str]) -> str:
    return stack[0].strip().removeprefix("File ")


def waits(stack: list[str]) -> bool:
    return any(progress.WITHIN.search(frame) for frame in stack[: progress.INNERMOST])


def missing_at_barrier(case: LaunchCase) -> dict[int, str]:
    """Return the ranks that did not reach a monitored barrier, with the line that names them."""
    found = {}
    for one in case.all_failures:
        match = AT_BARRIER.search(f"{one.summary}\n{one.traceback}")
        if match:
            found.update(dict.fromkeys((int(rank) for rank in re.findall(r"\d+", match[1])), match[0]))
    return found


def ranks_missing(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    return (CausePlace(case.node_of(rank), rank=rank) for rank in missing_at_barrier(case))


def was_missing(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    found = missing_at_barrier(case).get(-1 if place.rank is None else place.rank)
    return yes(found, "monitoredBarrier on rank 0") if found else no()


def was_there(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Return whether the rank was still running, or was stopped by its launcher. Then it was late, not absent."""
    if shots_at(case, place):
        return yes(f"rank {place.rank} was still running", "/proc snapshot")
    if any(one.rank == place.rank and one.by_launcher for one in case.all_failures):
        return yes(f"rank {place.rank} ran until its launcher stopped it", f"launcher log on {place.node}")
    own = [one for one in case.all_failures if one.rank == place.rank and not one.cascade]
    return no(f"the rank had ended: {own[0].summary}") if own else not_looked("it is unknown how the rank ended")


def ranks_alone(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    if case.launch["world_size"] == 1:
        yield from (CausePlace(one.node, rank=one.rank) for one in by if one.rank is not None)


def is_alone(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    if case.is_only_a_log:
        return not_looked("a log of one rank does not show the number of ranks")
    return yes("the launch has only one rank", "launch plan")


PRINTED = Question("calls.printed", "did the ranks print collectives that differ?", was_printed, by_words=True)
OTHER_OPERATION = Question(
    "calls.operation", "do the ranks run different collectives at the same position?", differ(progress.operation)
)
OTHER_SIZES = Question("calls.sizes", "do the ranks run a collective with different sizes?", differ(progress.sizes))
OTHER_TYPES = Question("calls.types", "do the ranks run a collective with different dtypes?", differ(progress.types))
DIFFER = ("program.operation_differs", "program.shapes_differ", "program.types_differ", INCONSISTENT)
BEHIND = Question(
    "rank.behind",
    "is rank {rank} behind the other ranks and not in a collective?",
    is_behind,
    OnNode("ps -eo pid,stat,time,wchan:20,args"),
)
ELSEWHERE = Question("rank.elsewhere", "is rank {rank} the only one outside a collective?", elsewhere)
SILENT = Question("rank.silent", "did the other ranks, but not rank {rank}, time out in NCCL?", did_not_time_out)
MISSING = Question("barrier.missing", "did rank {rank} miss a monitored barrier?", was_missing)
STILL_THERE = Question("rank.still_there", "was rank {rank} still running when the launch was stopped?", was_there)
ALONE = Question("rank.alone", "is rank {rank} the only rank of the launch?", is_alone)

WAITING = ("launch.stalled", "rank.victim", "gloo.timeout", "nccl.timeout", "nccl.heartbeat")
EXCEPTIONS = ("process.exception", "process.exception.everywhere")

CAUSES = (
    Cause(
        "program.other_operation",
        scope="code",
        says="the ranks do not run the same collectives in the same order",
        fix="Look for collectives in branches that only some ranks take (if rank == 0, try, break)",
        symptoms=(*WAITING, *DIFFER, "program.sizes_differ"),
        places=compared("operation"),
        confirm=(OTHER_OPERATION, PRINTED),
        decisive=("program.operation_differs",),
        instead_of=(*EXCEPTIONS, "process.crash", "program.other_sizes", "program.other_types", "program.bytes"),
    ),
    Cause(
        "program.other_sizes",
        scope="code",
        says="the ranks run the same collective with tensors of different sizes",
        fix="Look for partial batches and data-dependent sizes. Pad the tensors, or drop the last batch",
        symptoms=(*WAITING, *DIFFER, "program.sizes_differ"),
        places=compared("sizes", same="operation"),
        confirm=(OTHER_SIZES, PRINTED),
        decisive=("program.shapes_differ",),
        instead_of=(*EXCEPTIONS, "process.crash", "program.bytes"),
    ),
    Cause(
        "program.other_types",
        scope="code",
        says="the ranks run the same collective with tensors of different dtypes",
        fix="Use the same dtype on all ranks",
        symptoms=(*WAITING, *DIFFER, "program.sizes_differ"),
        places=compared("types", same="operation"),
        confirm=(OTHER_TYPES, PRINTED),
        decisive=("program.types_differ",),
        instead_of=(*EXCEPTIONS, "process.crash", "program.bytes"),
    ),
    Cause(
        "program.bytes",
        scope="code",
        says="the ranks run different collectives or use different sizes: Gloo received data of an unexpected size",
        fix="Launch again with TORCH_DISTRIBUTED_DEBUG=DETAIL in launch_env, which prints the collectives that differ",
        symptoms=("program.sizes_differ",),
        places=in_the_code,
        confirm=(),
        decisive=("program.sizes_differ",),
        instead_of=(*EXCEPTIONS, "process.crash"),
    ),
    Cause(
        "program.other_model",
        scope="code",
        says="the model differs between ranks",
        fix="Build the model from the same settings on all ranks: numbers of classes and layers, data-dependent sizes",
        symptoms=("program.parameter_differs", "program.parameter_count"),
        places=in_the_code,
        confirm=(),
        decisive=("program.parameter_differs", "program.parameter_count"),
        instead_of=(*EXCEPTIONS, "program.barrier"),
    ),
    Cause(
        "program.alone",
        scope="process",
        says="rank {rank} on {node} timed out waiting for its own GPU: the work before the collective did not finish",
        fix="Check whether a kernel of the rank runs endlessly, or increase the timeout of init_process_group",
        symptoms=("nccl.timeout",),
        places=ranks_alone,
        confirm=(ALONE,),
    ),
    Cause(
        "program.straggler",
        scope="process",
        says="rank {rank} on {node} did not reach the collective in which the other ranks waited",
        fix="Check the stack and last output of rank {rank}. If it sometimes does extra work, increase the timeout",
        symptoms=(*WAITING, "gloo.barrier"),
        places=ranks_behind,
        confirm=(BEHIND, ELSEWHERE),
        support=(SILENT,),
        refute=(STOPPED, DISK_WAIT, FROZEN),
        instead_of=("program.barrier",),
    ),
    Cause(
        "program.barrier",
        scope="process",
        says="rank {rank} on {node} did not reach a monitored barrier in time",
        fix="Check the log of rank {rank} for other work that delayed the rank, or increase the timeout",
        symptoms=("gloo.barrier",),
        places=ranks_missing,
        confirm=(),
        support=(MISSING, STILL_THERE),
        refute=(STOPPED, DISK_WAIT, FROZEN),
    ),
)


# ---------------------------------------------------------------- code

# Errors in the program that torch reports: parameters, checkpoints, devices, labels.
#
# A line is not a check: these causes are likely at most. A node is named only if ranks on other nodes, with the same
# code, did not fail.


def where_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the node if all ranks that failed were on this node; otherwise a place without a node."""
    nodes = {one.node for one in by if (one.rank is not None or case.is_only_a_log) and one.final}
    if nodes:
        yield CausePlace(nodes.pop() if len(nodes) == 1 < len(case.nodes) else "")


def anywhere(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    if any(one.final for one in by):
        yield CausePlace()


def by_words(
    name: str,
    text: str,
    says: str,
    fix: str,
    *,
    node: bool = False,
    also: tuple[str, ...] = (),
    instead_of: tuple[str, ...] = (),
) -> Cause:
    """Return a cause that a line in the last output of a rank makes likely. node: whether the cause can affect a single
    node. also: lines that make the cause only possible."""
    return Cause(
        name,
        scope="code",
        says=says,
        fix=fix,
        symptoms=(text, *also),
        places=where_met if node else anywhere,
        confirm=(),
        decisive=(text,),
        instead_of=instead_of,
    )


OF_CODE = (
    by_words(
        "program.unused_parameters",
        "program.unused_parameters",
        "a model parameter received no gradient in a step, but DDP waits for the gradients of all parameters",
        "Use every parameter in the loss, remove unused parameters, or pass find_unused_parameters=True to DDP",
    ),
    by_words(
        "program.ready_twice",
        "program.ready_twice",
        "a model parameter received its gradient twice in a step",
        "Use checkpointing with use_reentrant=False, or pass static_graph=True to DDP",
    ),
    by_words(
        "program.checkpoint.prefix",
        "program.checkpoint_prefix",
        "parameter names have DDP's prefix `module.` in the checkpoint but not in the model, or vice versa",
        "Save model.module.state_dict(), or remove `module.` from the names before load_state_dict",
        node=True,
        instead_of=("program.checkpoint.keys",),
    ),
    by_words(
        "program.checkpoint.keys",
        "program.checkpoint_keys",
        "the checkpoint is from another model or model version: parameter names are missing or unexpected",
        "Load the checkpoint of this model, and check that all nodes have the same file",
        node=True,
    ),
    by_words(
        "program.checkpoint.sizes",
        "program.checkpoint_sizes",
        "tensor sizes in the checkpoint and the model differ",
        "Build the model with the settings of the checkpoint (classes, layers, vocabulary), or leave out these tensors",
        node=True,
    ),
    by_words(
        "program.no_group",
        "program.no_group",
        "a collective was called before init_process_group or after destroy_process_group",
        "Call init_process_group first, on all ranks",
        node=True,
    ),
    by_words(
        "program.thread_left",
        "program.thread_left",
        "a thread was still running when its owner was destroyed. It is usually a Gloo thread, because an object still"
        " referenced the process group when Python exited",
        "Delete models and DDP objects, call gc.collect() and then destroy_process_group() (see docs/migrating.md)",
    ),
    by_words(
        "program.device_twice",
        "nccl.duplicate_gpu",
        "two ranks on one node use the same GPU",
        "Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before any other CUDA call",
        also=("nccl.invalid_usage",),
    ),
    by_words(
        "program.device_assert",
        "cuda.assert",
        "a CUDA kernel received an index that is out of range, such as a label beyond the number of classes",
        "Check labels and indices; CUDA_LAUNCH_BLOCKING=1 in launch_env shows the failing call",
        node=True,
    ),
    by_words(
        "program.forked",
        "cuda.forked",
        "a forked process, such as a data loader worker, uses CUDA although its parent has initialized CUDA",
        "Return CPU tensors from the dataset and move batches to the GPU in the training loop, or pass"
        " multiprocessing_context='spawn' to DataLoader",
    ),
    by_words(
        "program.devices_mixed",
        "cuda.devices_mixed",
        "an operation received tensors on different devices",
        "Move the model, its buffers and each batch to the same device: .to(device)",
    ),
    by_words(
        "program.device_type",
        "nccl.device_type",
        "a collective received a tensor on a device that the backend does not support, such as a CPU tensor with NCCL",
        "Move the tensor to the rank's GPU before the collective, or call init_process_group('cpu:gloo,cuda:nccl')",
    ),
    by_words(
        "program.other_device",
        "nccl.other_device",
        "a collective received a tensor on another GPU than the one to which torch bound the process group",
        "Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before any other CUDA call, and use only this GPU",
    ),
    by_words(
        "program.torch_for_cpus",
        "cuda.not_built",
        "the script uses a GPU, but torch in the launch environment is a CPU build",
        "Set cluster_backend or pytorch_variant to match the machines, or use an environment with a CUDA build",
        node=True,
        also=("python.built_without",),
    ),
)
