"""Mixed precision: bfloat16 where the device computes with it, else float16 with a GradScaler, beside float32.

https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn import functional

from . import model

if TYPE_CHECKING:
    from .context import Context

STEPS = {"quick": 8, "full": 30, "soak": 30}
PER_RANK = 8


def precision(context: Context) -> dict[str, Any]:
    steps = STEPS[context.options.mode]
    dtypes = [torch.bfloat16] if all(context.gather(has_bfloat16(context))) else [torch.float16]
    if context.device.type == "cuda" and context.options.mode != "quick":
        dtypes = [torch.bfloat16, torch.float16] if torch.bfloat16 in dtypes else dtypes
    with model.exact(context.device):
        plain = trained(context, steps, None)
        return {"steps": steps, "float32": plain, "mixed": [trained(context, steps, dtype) for dtype in dtypes]}


def has_bfloat16(context: Context) -> bool:
    """NVIDIA computes with it since compute capability 8.0; ROCm's GPUs and CPUs do, though not all quickly."""
    if context.device.type != "cuda" or torch.version.hip:
        return True
    return bool(torch.cuda.get_device_capability(context.device)[0] >= 8)


def trained(context: Context, steps: int, dtype: torch.dtype | None) -> dict[str, Any]:
    """losses: of each step, the mean over all ranks. lost_at: the first step whose loss on this rank is not finite."""
    name = str(dtype or torch.float32).removeprefix("torch.")
    wrapped = model.wrap(model.seeded_net(context.options.seed), context)
    optimizer = model.momentum_sgd(wrapped)
    # 65536, where it begins by default, may skip the first steps until it has found a scale without overflow: these are
    # too few for that, and their gradients are below 1.
    scaler = torch.amp.GradScaler(context.device.type, init_scale=1024.0, enabled=dtype is torch.float16)
    patterns = model.class_patterns(context.options.seed, model.SMALL)
    losses = torch.zeros(steps, device=context.device)
    for step in range(steps):
        context.at(f"step {step + 1} of {steps} in {name}")
        seed = context.options.seed + 1 + step * context.world_size + context.rank
        inputs, labels = (part.to(context.device) for part in model.batch(patterns, PER_RANK, seed))
        with torch.autocast(context.device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = functional.cross_entropy(wrapped(inputs), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses[step] = loss.detach()
    bad = (~torch.isfinite(losses)).nonzero().flatten().tolist()
    dist.all_reduce(losses)
    losses = torch.nan_to_num(losses / context.world_size, model.WORST, model.WORST, -model.WORST)
    points = [round(value, 6) for value in losses.tolist()]
    return {
        "dtype": name,
        "losses": points,
        "lost_at": bad[0] if bad else None,
        "scale": scaler.get_scale() if scaler.is_enabled() else None,
        "parameters_sha256": model.parameters_sha256(wrapped.module),
    }
