"""Collectives, exactly right: every place of what each rank receives is compared with what it must be."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .patterns import EXACT, Piece, compared, filled, most, moved, part, small, total

if TYPE_CHECKING:
    from collections.abc import Callable

    from .context import Context

SIZES = (1, 1023, 1 << 20)  # elements; 1023 is divisible by few world sizes
GROWTH = 4  # in full, from the last of SIZES to what fits
FREE_PART = 4  # in full, the buffers may take this part of the device's free memory, and on a CPU so many bytes:
CPU_BYTES = 256 << 20
SLOW_ENOUGH = 3.0  # seconds; nothing larger is tried then
SMALL_SIZE = 1023  # of what is reduced in 16 bits, and of random values
MOST_WRONG = 12  # entries in a report


def collectives(context: Context) -> dict[str, Any]:
    facts: dict[str, Any] = {"all_reduce": [], "cases": [], "not_tried": {}, "wrong": 0}
    for name, collective in COLLECTIVES.items():
        for dtype in (torch.int64, torch.float32):
            why = why_not(context, name, dtype)
            if not why:
                why = case(context, facts, name, dtype, collective)
            if why:
                facts["not_tried"][f"{name} {word(dtype)}"] = why
    for dtype in (torch.bfloat16, torch.float16):
        sixteen_bits(context, facts, dtype)
    facts["random"] = random_values(context)
    return facts


def why_not(context: Context, name: str, dtype: torch.dtype) -> str:
    if name == "ring" and context.world_size == 1:
        return "there is one rank alone"
    if most(context.world_size) > EXACT[dtype]:
        return f"{context.world_size} ranks have sums that {word(dtype)} does not hold exactly"
    return ""


def case(
    context: Context, facts: dict[str, Any], name: str, dtype: torch.dtype, collective: Callable[..., list[Piece]]
) -> str:
    """One collective with one type, from one element up. Return why it was not tried, where it was not."""
    entry: dict[str, Any] = {"collective": name, "dtype": word(dtype), "sizes": [], "wrong": []}
    size, took, left = SIZES[0], 0.0, list(SIZES)
    while left or (context.options.mode != "quick" and fits(context, size * GROWTH, dtype, took)):
        size = left.pop(0) if left else size * GROWTH
        context.at(f"{name} of {size} {word(dtype)} elements")
        began = time.monotonic()
        try:
            pieces = collective(context, size, dtype)
        except (NotImplementedError, RuntimeError) as problem:
            if "support" not in str(problem).lower():
                raise
            return str(problem).splitlines()[0][:200]
        context.wait()
        took = time.monotonic() - began
        entry["sizes"].append(size)
        note(context, facts, entry, size, pieces)
        if name == "all_reduce" and dtype == torch.int64:
            values = pieces[0].values
            wrong = entry["wrong"][-1]["mismatches"] if entry["wrong"] and entry["wrong"][-1]["size"] == size else 0
            facts["all_reduce"].append({"size": size, "sum": int(values.sum()), "mismatches": wrong})
    facts["cases"].append(entry)
    return ""


def note(context: Context, facts: dict[str, Any], entry: dict[str, Any], size: int, pieces: list[Piece]) -> None:
    """Write down what is wrong in what came."""
    for piece in pieces:
        odd = compared(piece)
        if odd is None:
            continue
        facts["wrong"] += 1
        text = f"{entry['collective']} of {size} {entry['dtype']} elements is wrong at {odd['mismatches']} places"
        context.wrong.append(text)
        if facts["wrong"] <= MOST_WRONG:
            entry["wrong"].append({"size": size, **odd})


def fits(context: Context, size: int, dtype: torch.dtype, took: float) -> bool:
    """Whether all ranks have room for so many elements, twice, and the last size did not take long on any."""
    room = CPU_BYTES
    if context.device.type == "cuda":
        room = torch.cuda.mem_get_info(context.device)[0] // FREE_PART
    fine = 2 * size * dtype.itemsize <= room and took < SLOW_ENOUGH
    answer = torch.tensor([int(fine)], device=context.device)
    dist.all_reduce(answer, dist.ReduceOp.MIN)
    return bool(answer.item())


def single(name: str, before: str) -> Callable[..., Any]:
    """torch 2.13 has another name for what was called ..._tensor, and warns of that one."""
    return getattr(dist, name, None) or getattr(dist, before)


def all_reduce(context: Context, size: int, dtype: torch.dtype) -> list[Piece]:
    values = filled(size, dtype, context.device, lambda places: part(places, context.rank))
    dist.all_reduce(values)
    return [Piece(values, lambda places: total(places, context.world_size))]


def broadcast(context: Context, size: int, dtype: torch.dtype) -> list[Piece]:
    root, count = size % context.world_size, context.world_size
    values = filled(size, dtype, context.device, lambda places: moved(places, context.rank, root, count))
    dist.broadcast(values, root)
    return [Piece(values, lambda places: moved(places, root, root, count), root)]


def all_gather(context: Context, size: int, dtype: torch.dtype) -> list[Piece]:
    rank, count = context.rank, context.world_size
    shard = max(1, size // count)
    values = filled(shard, dtype, context.device, lambda places: moved(places, rank, rank, count))
    found = torch.full((shard * count,), -1, dtype=dtype, device=context.device)
    single("all_gather_single", "all_gather_into_tensor")(found, values)
    return [
        Piece(piece, partial(moved, origin=origin, to=origin, world_size=count), origin)
        for origin, piece in enumerate(found.split(shard))
    ]


def reduce_scatter(context: Context, size: int, dtype: torch.dtype) -> list[Piece]:
    count = context.world_size
    shard = max(1, size // count)
    first = context.rank * shard
    values = filled(shard * count, dtype, context.device, lambda places: part(places, context.rank))
    found = torch.full((shard,), -1, dtype=dtype, device=context.device)
    single("reduce_scatter_single", "reduce_scatter_tensor")(found, values)
    return [Piece(found, lambda places: total(places + first, count))]


def all_to_all(context: Context, size: int, dtype: torch.dtype) -> list[Piece]:
    """The pieces are not of one size where the elements cannot be divided."""
    rank, count = context.rank, context.world_size
    splits = [size // count + (to < size % count) for to in range(count)]
    sent = [
        filled(split, dtype, context.device, partial(moved, origin=rank, to=to, world_size=count))
        for to, split in enumerate(splits)
    ]
    found = torch.full((splits[rank] * count,), -1, dtype=dtype, device=context.device)
    dist.all_to_all_single(found, torch.cat(sent), [splits[rank]] * count, splits)
    return [
        Piece(piece, partial(moved, origin=origin, to=rank, world_size=count), origin)
        for origin, piece in enumerate(found.split(splits[rank]) if splits[rank] else ())
    ]


def ring(context: Context, size: int, dtype: torch.dtype) -> list[Piece]:
    """Each rank sends to the next one."""
    rank, count = context.rank, context.world_size
    after, before = (rank + 1) % count, (rank - 1) % count
    values = filled(size, dtype, context.device, lambda places: moved(places, rank, after, count))
    found = torch.full((size,), -1, dtype=dtype, device=context.device)
    requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, values, after), dist.P2POp(dist.irecv, found, before)])
    for request in requests:
        request.wait()
    return [Piece(found, lambda places: moved(places, before, rank, count), before)]


COLLECTIVES = {
    "all_reduce": all_reduce,
    "broadcast": broadcast,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "ring": ring,
}


def sixteen_bits(context: Context, facts: dict[str, Any], dtype: torch.dtype) -> None:
    """An all-reduce whose sums are small enough to be exact."""
    count, limit = context.world_size, EXACT[dtype]
    if count > limit:
        facts["not_tried"][f"all_reduce {word(dtype)}"] = f"sums of {count} ranks are not exact in it"
        return
    context.at(f"all_reduce of {SMALL_SIZE} {word(dtype)} elements")
    values = filled(SMALL_SIZE, dtype, context.device, lambda places: small(places, context.rank, count, limit))
    dist.all_reduce(values)

    def expected(places: torch.Tensor) -> torch.Tensor:
        return torch.stack([small(places, rank, count, limit) for rank in range(count)]).sum(0)

    entry: dict[str, Any] = {"collective": "all_reduce", "dtype": word(dtype), "sizes": [SMALL_SIZE], "wrong": []}
    note(context, facts, entry, SMALL_SIZE, [Piece(values, expected)])
    facts["cases"].append(entry)


def random_values(context: Context) -> dict[str, Any]:
    """An all-reduce of random float32, against the sum in float64.

    Whatever the order, n numbers add up to within (n - 1) u / (1 - (n - 1) u) of the sum of their absolute values, with
    u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).
    """
    context.at(f"all_reduce of {SMALL_SIZE} random float32 elements")
    count, rounding = context.world_size, 2.0**-24
    parts = [
        torch.randn(SMALL_SIZE, generator=torch.Generator().manual_seed(context.options.seed + rank))
        for rank in range(count)
    ]
    values = parts[context.rank].to(context.device, copy=True)
    dist.all_reduce(values)
    exact = torch.stack(parts).double()
    bound = exact.abs().sum(0) * ((count - 1) * rounding / (1 - (count - 1) * rounding))
    error = (values.cpu().double() - exact.sum(0)).abs()
    mismatches = int((~(error <= bound)).sum())
    if mismatches:
        context.wrong.append(f"all_reduce of random float32 is outside its bound at {mismatches} places")
    worst = float((error / bound.clamp(min=1e-300)).max()) if count > 1 else 0.0
    return {"size": SMALL_SIZE, "mismatches": mismatches, "worst": round(worst, 3) if math.isfinite(worst) else None}


def word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
