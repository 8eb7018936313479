"""What torch says of the program itself: parameters, checkpoints, devices, labels.

The exception is the proof. A node is named only where the others, with the same code, did not meet it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import Cause, CausePlace
from ..said import said

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import Group, Question, Symptom

OWN = ("process.exception", "process.exception.everywhere", "process.crash")


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


CAUSES = (
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
