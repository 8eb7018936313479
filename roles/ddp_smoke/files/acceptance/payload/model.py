"""The small net that the training stages share, its batches, and what tells two sets of parameters apart."""

from __future__ import annotations

import ctypes
import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .context import Context

CLASSES = 10
LEARNING_RATE = 0.05
MOMENTUM = 0.9
SMALL = 16  # pixels of a side where the result counts and not the speed
# |a - b| <= absolute + relative * |b| for each element, as torch.allclose has it. With 53 bits of mantissa the order
# of a sum changes a step by about 1e-15, with 24 bits by about 1e-7; these leave room for what some steps make of it.
TOLERANCE = {torch.float64: (1e-9, 1e-10), torch.float32: (1e-4, 1e-5)}
WORST = 1e30  # stands for what is no finite number: JSON has none


def small_conv_net() -> nn.Module:
    # GroupNorm, not BatchNorm: no statistics of its own that would differ between ranks. SiLU, not ReLU: at a kink, the
    # last bit of a sum decides whether a sample counts, and equal runs drift apart.
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, stride=2),
        nn.GroupNorm(8, 32),
        nn.SiLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.GroupNorm(8, 64),
        nn.SiLU(),
        nn.Conv2d(64, 64, 3, padding=1, stride=2),
        nn.GroupNorm(8, 64),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def class_patterns(seed: int, side: int = 32) -> torch.Tensor:
    return torch.randn(CLASSES, 3, side, side, generator=torch.Generator().manual_seed(seed))


def batch(patterns: torch.Tensor, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """CIFAR-shaped samples: a class's pattern and noise; made from the seed alone, so no rank needs a download."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (size,), generator=generator)
    noise = torch.randn(size, *patterns.shape[1:], generator=generator)
    return patterns[labels] + noise, labels


def seeded_net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return small_conv_net()


def wrap(model: nn.Module, context: Context) -> DistributedDataParallel:
    model.to(context.device)
    return DistributedDataParallel(model, device_ids=[context.device.index] if context.device.type == "cuda" else None)


def momentum_sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Full fp32 instead of TF32, and the same kernels each time, as far as the device has such.

    https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
    """
    if device.type != "cuda":
        yield
        return
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def digest(parts: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Of names and bytes; equal only where they are bitwise equal. It needs no numpy."""
    found = hashlib.sha256()
    for name, tensor in parts:
        value = tensor.detach().cpu().contiguous()
        found.update(name.encode())
        found.update(ctypes.string_at(value.data_ptr(), value.numel() * value.element_size()))
    return found.hexdigest()


def parameters_sha256(model: nn.Module) -> str:
    return digest(model.named_parameters())


def apart(
    found: Iterable[tuple[str, torch.Tensor]], wanted: Iterable[torch.Tensor], relative: float, absolute: float
) -> dict[str, Any]:
    """How far the first are from the second: {parameter, excess, absolute, relative} at the worst place of all.

    excess: the difference by the tolerance there; what is above 1 is outside of it.
    """
    worst: dict[str, Any] = {"parameter": "", "excess": 0.0, "absolute": 0.0, "relative": 0.0}
    for (name, value), reference in zip(found, wanted, strict=True):
        there = reference.detach().double().to(value.device)
        difference = (value.detach().double() - there).abs()
        ratio = torch.nan_to_num(difference / (absolute + relative * there.abs()), WORST, WORST, WORST).flatten()
        place = int(ratio.argmax())
        if float(ratio[place]) >= worst["excess"]:
            difference, there = difference.flatten()[place], there.abs().flatten()[place]
            worst = {
                "parameter": name,
                "excess": float(ratio[place]),
                "absolute": float(torch.nan_to_num(difference, WORST, WORST)),
                "relative": float(torch.nan_to_num(difference / there.clamp_min(1e-30), WORST, WORST)),
            }
    return worst
