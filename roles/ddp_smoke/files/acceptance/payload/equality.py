"""DDP equals one process of the same run: same samples in the same order, and the same parameters afterwards.

DDP averages the gradients of n ranks, each of which averages over its b samples: the mean over all n * b samples, since
every rank has as many (https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html).
With gradient accumulation, a rank does this in parts of b / a samples, and all but the last without collectives.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn import functional

from . import model

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from .context import Context

PER_RANK = 4  # samples of a rank in a step
STEPS = {"quick": 5, "full": 20, "soak": 20}
ACCUMULATION = (1, 2)
CHUNK = 2048  # samples that one process takes at once: the activations of all ranks' samples need not fit
DIGITS = 16  # of a digest that is compared and nothing more


class Run(NamedTuple):
    dtype: torch.dtype
    accumulation: int
    steps: int
    seed: int
    patterns: torch.Tensor

    @property
    def name(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}, accumulation over {self.accumulation}"

    def samples(self, world_size: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The global batch of a step, rank after rank."""
        inputs, labels = model.batch(self.patterns, world_size * PER_RANK, self.seed + 1 + step)
        return inputs.to(self.dtype), labels


def equality(context: Context) -> dict[str, Any]:
    seed, patterns = context.options.seed, model.class_patterns(context.options.seed, model.SMALL)
    steps = STEPS[context.options.mode]
    with model.exact(context.device):
        runs = [
            compared(context, Run(dtype, accumulation, steps, seed, patterns))
            for dtype in model.TOLERANCE
            for accumulation in ACCUMULATION
        ]
    return {"runs": runs}


def compared(context: Context, run: Run) -> dict[str, Any]:
    """Train together and alone; what this rank holds against what one process has."""
    # Another net on each rank: that DDP makes them equal is a part of what is tried.
    net = model.seeded_net(run.seed + context.rank).to(run.dtype)
    wrapped = model.wrap(net, context)
    start = copy.deepcopy(net)
    facts: dict[str, Any] = {
        "dtype": str(run.dtype).removeprefix("torch."),
        "accumulation": run.accumulation,
        "steps": run.steps,
    }
    facts["start"] = model.parameters_sha256(net)[:DIGITS]
    losses, own, digests, data = together(context, wrapped, run)
    facts |= {"digests": digests, "parameters_sha256": model.parameters_sha256(net), **data}
    relative, absolute = model.TOLERANCE[run.dtype]
    names = [name for name, _ in net.named_parameters()]
    wanted, shares, parameters = one_process(context, start, run)
    split = torch.split(parameters, [parameter.numel() for parameter in net.parameters()])
    held = [parameter.flatten() for parameter in net.parameters()]
    facts["worst"] = model.apart(zip(names, held, strict=True), split, relative, absolute)
    facts["loss"] = model.apart([("loss", losses)], [wanted], relative, absolute)
    # Before the first averaging, what a rank computes is its own: there a wrong one is known.
    facts["own"] = model.apart([("its own loss at step 1", own)], [shares[context.rank]], relative, absolute)
    facts["tolerance"] = {"relative": relative, "absolute": absolute}
    if max(facts["worst"]["excess"], facts["loss"]["excess"]) > 1:
        context.wrong.append(f"DDP is not what one process trains ({run.name})")
    if data["trained"] != data["expected"]:
        context.wrong.append(f"trained on samples that are not those of this rank ({run.name})")
    return facts


def together(
    context: Context, wrapped: DistributedDataParallel, run: Run
) -> tuple[torch.Tensor, torch.Tensor, list[str], dict[str, Any]]:
    """Every step's loss over all ranks, the first one of this rank, digests of the parameters behind each step, and of
    the samples.
    """
    optimizer = model.momentum_sgd(wrapped)
    losses = torch.zeros(run.steps, dtype=run.dtype, device=context.device)
    digests, used = [], []
    for step in range(run.steps):
        context.at(f"step {step + 1} of {run.steps} under DDP ({run.name})")
        mine = shard(context.rank, *run.samples(context.world_size, step))
        used += mine
        optimizer.zero_grad()
        losses[step] = accumulated(context, wrapped, run, *mine)
        optimizer.step()
        digests.append(model.parameters_sha256(wrapped.module)[:DIGITS])
    own = losses[0].clone()
    dist.all_reduce(losses)
    return losses / context.world_size, own, digests, shards_of(context, run, used)


def shard(rank: int, *parts: torch.Tensor) -> list[torch.Tensor]:
    return [part[rank * PER_RANK : (rank + 1) * PER_RANK] for part in parts]


def accumulated(
    context: Context, wrapped: DistributedDataParallel, run: Run, inputs: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Leave the gradients of a step, and return the loss of this rank's samples."""
    size = PER_RANK // run.accumulation
    total = torch.zeros((), dtype=run.dtype, device=context.device)
    for part in range(run.accumulation):
        place = slice(part * size, (part + 1) * size)
        with wrapped.no_sync() if part < run.accumulation - 1 else nullcontext():
            output = wrapped(inputs[place].to(context.device))
            loss = functional.cross_entropy(output, labels[place].to(context.device)) / run.accumulation
            loss.backward()
        total += loss.detach()
    return total


def shards_of(context: Context, run: Run, used: list[torch.Tensor]) -> dict[str, Any]:
    """plan: all samples as this rank makes them. trained: those that it took. expected, of: as rank 0 shares them out,
    and whose shard it is that was taken; None when it is nobody's.
    """
    steps = [run.samples(context.world_size, step) for step in range(run.steps)]
    plan = digest_of([part for step in steps for part in step])
    shares = [""] * context.world_size
    if context.rank == 0:
        for rank in range(context.world_size):
            shares[rank] = digest_of([part for step in steps for part in shard(rank, *step)])
    dist.broadcast_object_list(shares, src=0, device=context.device)
    trained = digest_of(used)
    whose = shares.index(trained) if trained in shares else None
    return {"plan": plan, "trained": trained, "expected": shares[context.rank], "of": whose}


def digest_of(parts: list[torch.Tensor]) -> str:
    return model.digest(("", part) for part in parts)[:DIGITS]


def one_process(context: Context, net: nn.Module, run: Run) -> tuple[torch.Tensor, ...]:
    """Of the same run in one process, rank 0, told to all: the losses, those of each rank's samples in the first step,
    and the parameters in the end.
    """
    sizes = [run.steps, context.world_size, sum(parameter.numel() for parameter in net.parameters())]
    result = torch.zeros(sum(sizes), dtype=run.dtype, device=context.device)
    losses, shares, parameters = result.split(sizes)
    if context.rank == 0:
        optimizer = model.momentum_sgd(net)
        shares.copy_(loss_by_rank(context, net, *run.samples(context.world_size, 0)))
        for step in range(run.steps):
            context.at(f"step {step + 1} of {run.steps} in one process ({run.name})")
            optimizer.zero_grad()
            losses[step] = alone(context, net, *run.samples(context.world_size, step))
            optimizer.step()
        parameters.copy_(torch.nn.utils.parameters_to_vector(net.parameters()).detach())
    context.at(f"broadcast of the run in one process ({run.name})")
    dist.broadcast(result, src=0)
    return losses, shares, parameters


def loss_by_rank(context: Context, net: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    losses = []
    with torch.no_grad():
        for some, theirs in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
            output = net(some.to(context.device))
            losses.append(functional.cross_entropy(output, theirs.to(context.device), reduction="none"))
    return torch.cat(losses).view(-1, PER_RANK).mean(dim=1)


def alone(context: Context, net: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Leave the gradients of the whole global batch, and return its loss."""
    total = torch.zeros((), dtype=inputs.dtype, device=context.device)
    for some, theirs in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
        output = net(some.to(context.device))
        loss = functional.cross_entropy(output, theirs.to(context.device), reduction="sum") / len(inputs)
        loss.backward()
        total += loss.detach()
    return total
