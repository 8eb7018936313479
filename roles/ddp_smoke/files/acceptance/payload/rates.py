"""How fast a collective is, with the definitions of nccl-tests (doc/PERFORMANCE.md).

algbw = S / t; busbw = algbw times a factor, so that it may be held against what the links carry. S: bytes of the whole
buffer. t: mean over the iterations, the maximum over the ranks, after a warm-up, with the device synchronised.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .collectives import single

if TYPE_CHECKING:
    from collections.abc import Callable

    from .context import Context

WARM_UPS, MOST_ITERATIONS = 5, 20  # those of nccl-tests, as far as a point's time allows
GROWTH = 4
LEAST_BYTES = 8


@dataclass(frozen=True)
class Level:
    """Ranks that are measured together. name: all, node or across. node: node rank, of the level node alone."""

    name: str
    ranks: tuple[int, ...]
    group: Any = None
    node: int | None = None


@dataclass(frozen=True)
class RateLimits:
    """largest: bytes. point: seconds of each size. slow: what takes so long is the last size that is tried."""

    largest: int
    point: float
    slow: float


def factor(collective: str, ranks: int) -> float:
    return {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(collective, (ranks - 1) / ranks)


def sizes(largest: int) -> list[int]:
    """8 bytes, times four, and the largest."""
    found = []
    size = LEAST_BYTES
    while size < largest:
        found.append(size)
        size *= GROWTH
    return [*found, largest]


def prepared(collective: str, size: int, level: Level, device: torch.device) -> tuple[int, Callable[[], Any]]:
    """Bytes as they are, and what runs it once."""
    count, group = len(level.ranks), level.group
    elements = max(1, size // 4)
    if collective not in ("all_reduce", "broadcast"):
        elements = max(1, elements // count) * count
    whole = torch.ones(elements, dtype=torch.float32, device=device)
    shard = torch.ones(max(1, elements // count), dtype=torch.float32, device=device)
    other = torch.empty_like(whole) if collective == "all_to_all" else whole
    gather = single("all_gather_single", "all_gather_into_tensor")
    scatter = single("reduce_scatter_single", "reduce_scatter_tensor")
    runs: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, level.ranks[0], group=group),
        "all_gather": lambda: gather(whole, shard, group=group),
        "reduce_scatter": lambda: scatter(shard, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
    }
    return elements * 4, runs[collective]


def curve(context: Context, level: Level, collective: str, limits: RateLimits) -> dict[str, Any]:
    """{collective, level, node, ranks, points: [{bytes, seconds, algbw, busbw}]}, GB/s of 1e9 bytes."""
    points: list[dict[str, Any]] = []
    for size in sizes(limits.largest):
        context.at(f"{collective} of {size} bytes ({level.name})")
        real, run = prepared(collective, size, level, context.device)
        once = agreed(context, level, timed(context, run, 1))
        rounds = max(1, min(MOST_ITERATIONS, int(limits.point / max(once, 1e-9))))
        timed(context, run, min(WARM_UPS, rounds) - 1)
        seconds = agreed(context, level, timed(context, run, rounds))
        algbw = real / seconds / 1e9
        busbw = algbw * factor(collective, len(level.ranks))
        points.append({"bytes": real, "seconds": digits(seconds), "algbw": digits(algbw), "busbw": digits(busbw)})
        if seconds > limits.slow:
            break
    return {
        "collective": collective,
        "level": level.name,
        "node": level.node,
        "ranks": len(level.ranks),
        "points": points,
    }


def timed(context: Context, run: Callable[[], Any], rounds: int) -> float:
    """Seconds of one round."""
    context.wait()
    began = time.perf_counter()
    for _ in range(rounds):
        run()
    context.wait()
    return (time.perf_counter() - began) / max(rounds, 1)


def agreed(context: Context, level: Level, seconds: float) -> float:
    """The slowest rank's: all go on with the same number."""
    value = torch.tensor([max(seconds, 1e-9)], dtype=torch.float64, device=context.device)
    dist.all_reduce(value, dist.ReduceOp.MAX, group=level.group)
    return float(value.item())


def digits(value: float) -> float:
    return float(f"{value:.4g}")
