"""One release of PyTorch that never was is not one that is too new to be known."""

from __future__ import annotations

from ..gpu_stack.table import numbers
from ..known.rows import TORCH_RELEASES


def nearest_release(version: str) -> str | None:
    """Return the known release nearest to one that never was; None for a known one, and for what is newer than all."""
    wanted = numbers(version)
    if version in TORCH_RELEASES or wanted > numbers(TORCH_RELEASES[-1]):
        return None
    return min(TORCH_RELEASES, key=lambda release: _distance(numbers(release), wanted))


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(abs(a - b) for a, b in zip(one, other, strict=True))
