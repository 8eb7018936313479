"""Weak scaling: how many samples a second one rank alone trains, and how many all of them together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import cores
from .context import NotTriedError
from .model import batch, class_patterns, small_conv_net

if TYPE_CHECKING:
    from .context import Context

# The sizes that people publish such figures with: 50 steps at least, after 10 that warm up.
WARM, STEPS = {"quick": 5, "full": 10, "soak": 10}, {"quick": 20, "full": 60, "soak": 60}
BATCH = {"cuda": 512, "cpu": 32}


def scaling(context: Context) -> dict[str, Any]:
    if context.world_size == 1:
        raise NotTriedError("one rank alone is all there is")
    if why := cores.shared(context):
        raise NotTriedError(f"{why}, and need two each: together they cannot be faster")
    cuda = context.device.type == "cuda"
    torch.manual_seed(context.options.seed)
    model = small_conv_net().to(context.device)
    patterns = class_patterns(context.options.seed)
    data = [part.to(context.device) for part in batch(patterns, BATCH[context.device.type], context.options.seed)]
    alone = None
    if context.rank == 0:
        context.at("the steps of rank 0 alone")
        alone = rate(context, model, data)
    context.at("waiting for rank 0, which trains alone")
    alone = context.gather(alone)[0]
    together = DistributedDataParallel(model, device_ids=[context.local_rank] if cuda else None)
    context.at("the steps of all together")
    rates = context.gather(rate(context, together, data))
    return {
        "alone": round(alone, 1),
        # All wait for the slowest.
        "together": round(min(rates) * context.world_size, 1),
        "gradient_bytes": sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        "batch": len(data[0]),
    }


def rate(context: Context, model: nn.Module, data: list[torch.Tensor]) -> float:
    """Samples a second of this rank."""
    mode = context.options.mode
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss()
    began = 0.0
    for step in range(WARM[mode] + STEPS[mode]):
        if step == WARM[mode]:
            context.wait()
            began = time.perf_counter()
        optimizer.zero_grad()
        criterion(model(data[0]), data[1]).backward()
        optimizer.step()
    context.wait()
    return len(data[0]) * STEPS[mode] / max(time.perf_counter() - began, 1e-9)
