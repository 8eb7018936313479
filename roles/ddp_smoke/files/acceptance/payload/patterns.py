"""What a collective is given, and what must come out: every value says its place and its rank.

A reduction: rank r gives (place mod 997 + 1) * (r + 1), so that a missing rank can be reckoned from what came. What is
only moved: (from * world size + to) * 997 + place mod 997, so that a swapped or shifted piece says whose it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD = 997
CHUNK = 1 << 22  # places at once: what is compared takes little memory beside what is sent
# Integers up to these are exact, and so are their sums in any order (IEEE 754; bfloat16 has 8 bits of significand).
EXACT = {torch.int64: 2**53, torch.float32: 2**24, torch.float16: 2**11, torch.bfloat16: 2**8}


@dataclass(frozen=True)
class Piece:
    """Some of what came. values: as received. expected: of places. origin: the rank it came from; None: from all."""

    values: torch.Tensor
    expected: Callable[[torch.Tensor], torch.Tensor]
    origin: int | None = None


def part(places: torch.Tensor, rank: int) -> torch.Tensor:
    """What a rank gives to a reduction."""
    return (places % PERIOD + 1) * (rank + 1)


def total(places: torch.Tensor, world_size: int) -> torch.Tensor:
    return (places % PERIOD + 1) * (world_size * (world_size + 1) // 2)


def moved(places: torch.Tensor, origin: int, to: int, world_size: int) -> torch.Tensor:
    return (origin * world_size + to) * PERIOD + places % PERIOD


def small(places: torch.Tensor, rank: int, world_size: int, most: int) -> torch.Tensor:
    """What a rank gives where sums must stay below most."""
    return (places + rank) % max(2, most // world_size)


def most(world_size: int) -> int:
    """The largest value that part, total and moved make."""
    return PERIOD * max(world_size * world_size, world_size * (world_size + 1) // 2)


def filled(
    size: int, dtype: torch.dtype, device: torch.device, value: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    values = torch.empty(size, dtype=dtype, device=device)
    for start in range(0, size, CHUNK):
        places = torch.arange(start, min(start + CHUNK, size), dtype=torch.int64, device=device)
        values[start : start + CHUNK] = value(places).to(dtype)
    return values


def compared(piece: Piece) -> dict[str, Any] | None:
    """{mismatches, samples: [{place, got, wanted, from}]} with the first and the last wrong place; None if all fit."""
    mismatches, samples = 0, []
    size = piece.values.numel()
    for start in range(0, size, CHUNK):
        places = torch.arange(start, min(start + CHUNK, size), dtype=torch.int64, device=piece.values.device)
        got = piece.values[start : start + CHUNK]
        wanted = piece.expected(places)
        odd = torch.nonzero(got != wanted.to(got.dtype)).flatten()
        if odd.numel():
            mismatches += odd.numel()
            for index in {int(odd[0]), int(odd[-1])}:
                sample = {"place": start + index, "got": plain(got[index]), "wanted": plain(wanted[index])}
                samples.append({**sample, "from": piece.origin})
    if not mismatches:
        return None
    samples.sort(key=lambda one: one["place"])
    return {"mismatches": mismatches, "samples": [samples[0], samples[-1]][: min(2, mismatches)]}


def plain(value: torch.Tensor) -> int | str:
    """A value for a report: an integer, or the words for what is none."""
    number = value.item()
    return int(number) if math.isfinite(number) and number == int(number) else str(number)
