"""A small training under DDP on synthetic data: the loss falls, and all ranks hold the same parameters afterwards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import nn

from . import model

if TYPE_CHECKING:
    from .context import Context

ENDS = 5  # losses averaged at the beginning and at the end: one step's loss is noise
MOST_POINTS = 100  # of the loss's curve


def train(context: Context) -> dict[str, Any]:
    options = context.options
    # DDP must make the ranks equal, not the seed.
    wrapped = model.wrap(model.seeded_net(options.seed + context.rank), context)
    losses, rate = steps(wrapped, context)
    ends = min(ENDS, max(1, len(losses) // 2))
    return {
        "parameters_sha256": model.parameters_sha256(wrapped.module),
        "loss_first": sum(losses[:ends]) / ends,
        "loss_last": sum(losses[-ends:]) / ends,
        "samples_per_second": round(rate, 1),
    }


def steps(net: nn.Module, context: Context) -> tuple[list[float], float]:
    """Every step's loss on this rank, and this rank's samples per second without the first step."""
    options, world_size = context.options, dist.get_world_size()
    patterns = model.class_patterns(options.seed)
    optimizer = model.momentum_sgd(net)
    criterion = nn.CrossEntropyLoss()
    losses = []
    every = -(-options.steps // MOST_POINTS)
    began = time.monotonic()
    for step in range(options.steps):
        context.at(f"step {step + 1} of {options.steps}")
        # A seed of its own for every rank and step: the shards are disjoint.
        seed = options.seed + 1 + step * world_size + context.rank
        inputs, labels = (part.to(context.device) for part in model.batch(patterns, options.batch_size, seed))
        loss = criterion(net(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if step == 0:
            began = time.monotonic()  # the first step also sets up buckets and connections
        elif context.rank == 0 and ((step + 1) % every == 0 or step + 1 == options.steps):
            rate = world_size * options.batch_size * step / (time.monotonic() - began)
            context.say("step", step=step + 1, steps=options.steps, loss=losses[-1], samples_per_second=round(rate, 1))
    seconds = max(time.monotonic() - began, 1e-9)
    return losses, options.batch_size * max(options.steps - 1, 0) / seconds
