"""The program: other calls, other sizes, other models, fewer steps, a straggler.

Where the ranks do not do the same, the code is to be read, and no node is named; a rank is named where it alone holds
the others up, or left before them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...launch.endings import Ending
from ...verdict.commands import OnNode
from .. import progress
from ..case import once
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..questions import said, shots_at
from .process import DISK_WAIT, FROZEN, STOPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..case import LaunchCase
    from ..evidence import Collective
    from ..model import CauseAnswer, Group, Symptom


WAITED = re.compile(r"Timed out waiting|[Ww]atchdog|timed? ?out|failed to pass monitoredBarrier")
AT_BARRIER = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")


def in_the_code(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case, by
    yield CausePlace()


@once
def others_waited(case: LaunchCase) -> bool:
    """Whether ranks waited until somebody's patience was over, and not because a peer had gone."""
    launch = case.launch
    if launch["live"] or launch["ending"] == Ending.STALLED.name:
        return True
    return any(WAITED.search(f"{one.summary}\n{one.traceback}") for one in case.all_failures if one.cascade)


@once
def own_end(case: LaunchCase) -> str:
    """Which rank ended by itself, so that others wait or lose it for that reason; "" for none."""
    return next((one.where for one in case.all_failures if one.rank is not None and not one.cascade), "")


def differ(of: Callable[[Collective], str]) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        del place
        if sum(bool(one.calls) for one in progress.progress(case)) < 2:
            return not_looked("fewer than two flight recorders could be read")
        found = progress.difference(case, of)
        return yes(found, "torch's flight recorders") if found else no("the last calls of the ranks are the same")

    return look


def is_behind(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if own := own_end(case):
        return no(f"{own} had ended by itself")
    if not others_waited(case):
        return no("no rank waited until its time was over")
    known = {one.rank: one for one in progress.progress(case)}
    if place.rank not in known or len(known) < 2:
        return not_looked(
            next((one["flight_why"] for one in shots_at(case, place) if one["flight_why"]), "no recorder")
        )
    first, one = progress.furthest(case), known[place.rank]
    if first is None or one.enqueued >= first.enqueued:
        return no(f"it had begun {one.enqueued} calls, as many as any other")
    if one.within is None:
        return not_looked(f"rank {one.rank} is behind, and its stack, which says whether it waits, is not known")
    if one.within:
        return no(f"rank {one.rank} is behind, and waits in a call itself")
    here = next((at(shot["stack"]) for shot in shots_at(case, place) if shot["stack"]), "")
    where = f", and is at {here}" if here else ""
    return yes(f"it had begun {one.enqueued} calls, rank {first.rank} {first.enqueued}{where}", one.source)


def ranks_behind(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Those that are behind by their recorders; where there are none, whoever still lives."""
    del by
    known = progress.behind(case)
    ranks = known or dict.fromkeys(case.shots)
    return (CausePlace(case.node_of(rank), rank=rank) for rank in ranks)


def elsewhere(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """By stacks alone: all others wait in a call, and this one does not."""
    if own_end(case) or not others_waited(case):
        return no("a rank ended by itself, or none waited")
    known = {one.rank: one.enqueued for one in progress.progress(case)}
    if len(known) > 1 and place.rank in known and known[place.rank] == max(known.values()):
        return no("it had begun as many calls as any other")
    stacks = {rank: shot["stack"] for rank, (_, shot) in case.shots.items() if shot["stack"]}
    if place.rank not in stacks or len(stacks) < 2:
        return not_looked(next((one["stack_why"] for one in shots_at(case, place) if one["stack_why"]), "no stacks"))
    outside = [rank for rank, stack in stacks.items() if not waits(stack)]
    if outside != [place.rank]:
        return no(f"outside of a call were {len(outside)} of {len(stacks)} ranks")
    return yes(f"it was at {at(stacks[place.rank])}; all others waited in a call", "stacks before the stop")


def at(stack: list[str]) -> str:
    return stack[0].strip().removeprefix("File ")


def waits(stack: list[str]) -> bool:
    return any(progress.WITHIN.search(frame) for frame in stack[: progress.INNERMOST])


def missing_at_barrier(case: LaunchCase) -> dict[int, str]:
    """The ranks that did not come to a monitored barrier, with the line that names them."""
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
    """A rank that lives, or ended after the others had waited: it was late, and not gone."""
    if shots_at(case, place):
        return yes(f"rank {place.rank} still ran", "/proc before the stop")
    if any(one.rank == place.rank and one.by_launcher for one in case.all_failures):
        return yes(f"rank {place.rank} ran until its launcher told it to stop", f"launcher's log on {place.node}")
    own = [one for one in case.all_failures if one.rank == place.rank and not one.cascade]
    return no(f"it had ended: {own[0].summary}") if own else not_looked("whether it still ran is not known")


def ranks_that_finished(case: LaunchCase) -> list[int]:
    codes = {name: end["code"] for name, end in case.node_ends.items() if end["reason"] == "exit"}
    return [one["rank"] for one in case.seen["ranks"] if 0 in (one["code"], codes.get(one["node"]))]


def finished(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    done = ranks_that_finished(case)
    return (CausePlace(case.node_of(rank), rank=rank) for rank in done if len(done) < case.launch["world_size"])


def ranks_alone(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    if case.launch["world_size"] == 1:
        yield from (CausePlace(one.node, rank=one.rank) for one in by if one.rank is not None)


def is_alone(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    if case.is_only_a_log:
        return not_looked("a log of one rank does not say how many there were")
    return yes("it is the launch's only rank", "the launch's plan")


def left_early(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if own := own_end(case):
        return no(f"{own} had ended by itself")
    end = case.rank_ends[-1 if place.rank is None else place.rank]
    left = end["gone_at"] or case.node_ends[place.node]["ended_at"]
    later = [one for one in case.all_failures if one.cascade and one.when >= left]
    waiting = [rank for rank in case.shots if rank != place.rank]
    if later:
        return yes(f"it ended with the code 0; then {later[0].where}: {later[0].summary}", "ends of the ranks", left)
    if waiting and others_waited(case):
        return yes(f"it ended with the code 0, and rank {waiting[0]} still ran", "ends of the ranks", left)
    return no("no other rank waited for it afterwards")


OTHER_OPERATION = Question(
    "calls.operation", "do the ranks call different collectives at the same place?", differ(progress.operation)
)
OTHER_SIZES = Question("calls.sizes", "do the ranks call a collective with different sizes?", differ(progress.sizes))
OTHER_TYPES = Question("calls.types", "do the ranks call a collective with different types?", differ(progress.types))
DETAIL = "program.collectives_differ"
OPERATION_SAID = said("said.operation", "did torch find other calls (DETAIL)?", DETAIL, containing="Op type:")
SIZES_SAID = said("said.sizes", "did torch find other sizes (DETAIL)?", DETAIL, containing="Tensor shapes:")
TYPES_SAID = said("said.types", "did torch find other types (DETAIL)?", DETAIL, containing="dtypes:")
BYTES_SAID = said("said.bytes", "did Gloo receive another number of bytes than was asked for?", "program.sizes_differ")
MODELS_SAID = said("said.models", "did DDP find other models?", "program.parameter_differs", "program.parameter_count")
BEHIND = Question(
    "rank.behind",
    "has rank {rank} begun fewer calls than the others, and is it outside of a call?",
    is_behind,
    OnNode("ps -eo pid,stat,time,wchan:20,args"),
)
ELSEWHERE = Question("rank.elsewhere", "is rank {rank} the only one outside of a call?", elsewhere)
MISSING = Question("barrier.missing", "did rank {rank} not come to a monitored barrier?", was_missing)
STILL_THERE = Question("rank.still_there", "did rank {rank} still run then?", was_there)
ALONE = Question("rank.alone", "is rank {rank} the only one of the launch?", is_alone)
LEFT = Question("rank.left", "did rank {rank} finish while others still waited for it?", left_early)

WAITING = ("launch.stalled", "rank.victim", "gloo.timeout", "nccl.timeout", "nccl.heartbeat")
EXCEPTIONS = ("process.exception", "process.exception.everywhere")

CAUSES = (
    Cause(
        "program.other_operation",
        group="program",
        scope="code",
        says="the ranks do not call the same collectives in the same order",
        fix="Look for collectives within a condition that is not the same on all ranks (if rank == 0, try, break)",
        symptoms=(*WAITING, DETAIL, "program.sizes_differ"),
        places=in_the_code,
        confirm=(OTHER_OPERATION, OPERATION_SAID),
        instead_of=(*EXCEPTIONS, "process.crash", "program.other_sizes", "program.other_types", "program.bytes"),
    ),
    Cause(
        "program.other_sizes",
        group="program",
        scope="code",
        says="the ranks call the same collective with tensors of different sizes",
        fix="Look at batches that are not full, or sizes that depend on the data: pad them, or drop the last batch",
        symptoms=(*WAITING, DETAIL, "program.sizes_differ"),
        places=in_the_code,
        confirm=(OTHER_SIZES, SIZES_SAID),
        instead_of=(*EXCEPTIONS, "process.crash", "program.bytes"),
    ),
    Cause(
        "program.other_types",
        group="program",
        scope="code",
        says="the ranks call the same collective with tensors of different types",
        fix="Give the tensors the same dtype on all ranks",
        symptoms=(*WAITING, DETAIL, "program.sizes_differ"),
        places=in_the_code,
        confirm=(OTHER_TYPES, TYPES_SAID),
        instead_of=(*EXCEPTIONS, "process.crash", "program.bytes"),
    ),
    Cause(
        "program.bytes",
        group="program",
        scope="code",
        says="the ranks do not call the same with the same sizes: Gloo received other data than was asked for",
        fix="Launch again with TORCH_DISTRIBUTED_DEBUG=DETAIL in launch_env: it says which calls differ",
        symptoms=("program.sizes_differ",),
        places=in_the_code,
        confirm=(BYTES_SAID,),
        instead_of=(*EXCEPTIONS, "process.crash"),
    ),
    Cause(
        "program.other_model",
        group="program",
        scope="code",
        says="the model is not the same on all ranks",
        fix="Make it from the same settings everywhere, before DDP: number of classes, layers, data that sizes it",
        symptoms=("program.parameter_differs", "program.parameter_count"),
        places=in_the_code,
        confirm=(MODELS_SAID,),
        instead_of=(*EXCEPTIONS, "program.barrier"),
    ),
    Cause(
        "program.uneven_steps",
        group="program",
        scope="process",
        says="rank {rank} on {node} had done all its steps and left, while others still waited for it",
        fix="Give all ranks the same number of batches (DistributedSampler, drop_last), or use DDP's join()",
        symptoms=WAITING,
        places=finished,
        confirm=(LEFT,),
    ),
    Cause(
        "program.alone",
        group="program",
        scope="process",
        says="rank {rank} on {node} waited for its own GPU alone, which did not end in time what comes before the call",
        fix="Look what it computes there, such as a kernel without an end, or give init_process_group a longer timeout",
        symptoms=("nccl.timeout",),
        places=ranks_alone,
        confirm=(ALONE,),
    ),
    Cause(
        "program.straggler",
        group="program",
        scope="process",
        says="rank {rank} on {node} did not come to the call in which the others waited for it",
        fix="Look at what it did instead: its stack and its last lines; rare work of one rank needs a longer timeout",
        symptoms=(*WAITING, "gloo.barrier"),
        places=ranks_behind,
        confirm=(BEHIND, ELSEWHERE),
        refute=(STOPPED, DISK_WAIT, FROZEN),
        instead_of=("program.barrier",),
    ),
    Cause(
        "program.barrier",
        group="program",
        scope="process",
        says="rank {rank} on {node} did not come to a monitored barrier in time",
        fix="Read its log: it did something else, or was slower than the others",
        symptoms=("gloo.barrier",),
        places=ranks_missing,
        confirm=(),
        support=(MISSING, STILL_THERE),
        refute=(STOPPED, DISK_WAIT, FROZEN),
    ),
)


OWN = ("process.exception", "process.exception.everywhere", "process.crash")


# ---------------------------------------------------------------- code

# What torch says of the program itself: parameters, checkpoints, devices, labels.
#
# The exception is the proof. A node is named only where the others, with the same code, did not meet it.


def where_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """The one node whose ranks ended so, where those of others did not; else no node."""
    nodes = {one.node for one in by if one.rank is not None and one.final}
    if nodes:
        yield CausePlace(nodes.pop() if len(nodes) == 1 < len(case.nodes) else "")


def anywhere(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    if any(one.final for one in by):
        yield CausePlace()


def by_words(
    name: str, text: str, asks: str, says: str, fix: str, *, node: bool = False, instead_of: tuple[str, ...] = ()
) -> Cause:
    """A cause that the last words of a rank prove. node: whether one node may have it alone."""
    question: Question = said(f"said.{text}", asks, text)
    group: Group = "program"
    return Cause(
        name,
        group=group,
        scope="code",
        says=says,
        fix=fix,
        symptoms=(text,),
        places=where_met if node else anywhere,
        confirm=(question,),
        instead_of=(*OWN, *instead_of),
    )


OF_CODE = (
    by_words(
        "program.unused_parameters",
        "program.unused_parameters",
        "did DDP wait for the gradient of a parameter that was not used?",
        "a parameter of the model got no gradient in a step, and DDP waits for each of them",
        "Use every parameter in the loss, take out those that are not needed, or give DDP find_unused_parameters=True",
    ),
    by_words(
        "program.ready_twice",
        "program.ready_twice",
        "did a parameter get its gradient twice?",
        "a parameter of the model got its gradient twice in a step",
        "Use checkpointing with use_reentrant=False, or give DDP static_graph=True",
    ),
    by_words(
        "program.checkpoint.prefix",
        "program.checkpoint_prefix",
        "do the names in the checkpoint differ by `module.`?",
        "the checkpoint has DDP's `module.` before all names and the model has not, or the other way round",
        "Save model.module.state_dict(), or take `module.` from the names before load_state_dict",
        node=True,
        instead_of=("program.checkpoint.keys",),
    ),
    by_words(
        "program.checkpoint.keys",
        "program.checkpoint_keys",
        "does the checkpoint have other names than the model?",
        "the checkpoint is of another model, or of another version of it: names are missing or not known",
        "Load the checkpoint of this model; look whether the same file lies on all nodes",
        node=True,
    ),
    by_words(
        "program.checkpoint.sizes",
        "program.checkpoint_sizes",
        "are tensors in the checkpoint of other sizes than in the model?",
        "tensors in the checkpoint are of other sizes than in the model",
        "Make the model with the settings of the checkpoint (classes, layers, vocabulary), or leave these tensors out",
        node=True,
    ),
    by_words(
        "program.no_group",
        "program.no_group",
        "was a collective called without a process group?",
        "a collective is called before init_process_group, or after destroy_process_group",
        "Call init_process_group first, on all ranks",
        node=True,
    ),
    by_words(
        "program.thread_left",
        "program.thread_left",
        "did the C++ library abort because a thread was still running?",
        "a thread was still running when its owner was taken down: most often Gloo's, where something holds the process"
        " group when Python ends",
        "Drop models and DDP objects, call gc.collect() and then destroy_process_group(), as docs/migrating.md shows",
    ),
    by_words(
        "program.device_twice",
        "nccl.duplicate_gpu",
        "did NCCL find two ranks on one GPU?",
        "two ranks of a node use the same GPU",
        "Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything of CUDA",
    ),
    by_words(
        "program.device_assert",
        "cuda.assert",
        "did a kernel find an index out of range?",
        "an index is out of range in a kernel, such as a label beyond the number of classes",
        "Look at labels and indices; CUDA_LAUNCH_BLOCKING=1 in launch_env shows the call",
        node=True,
    ),
    by_words(
        "program.forked",
        "cuda.forked",
        "was CUDA used in a process that had been forked?",
        "a process that was forked, such as a worker of a data loader, uses CUDA, which its parent had begun to use",
        "Give tensors on the processor from the data set and bring batches to the GPU in the loop, or give DataLoader"
        " multiprocessing_context='spawn'",
    ),
    by_words(
        "program.devices_mixed",
        "cuda.devices_mixed",
        "did a call get tensors of several devices?",
        "a call got tensors of several devices",
        "Bring the model, its buffers and each batch to the same device: .to(device)",
    ),
    by_words(
        "program.device_type",
        "nccl.device_type",
        "did a collective get a tensor on a device that its library is not for?",
        "a collective got a tensor on a device that the process group's library is not for, such as NCCL one on the"
        " processor",
        "Bring the tensor to the rank's GPU before the call, or begin the group with"
        " init_process_group('cpu:gloo,cuda:nccl')",
    ),
    by_words(
        "program.torch_for_cpus",
        "cuda.not_built",
        "is the torch of the environment one for CPUs?",
        "the script asks for a GPU, and the torch of the environment is the one for CPUs",
        "Set cluster_backend or pytorch_variant as the machines are, or launch in an environment with CUDA",
        node=True,
    ),
)
