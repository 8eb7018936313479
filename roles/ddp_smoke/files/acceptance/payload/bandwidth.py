"""How fast the ranks talk: all of them, inside each node, across the nodes, and each pair of nodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .context import NotTriedError
from .meetings import rounds, usual_of
from .rates import Level, RateLimits, curve, digits

if TYPE_CHECKING:
    from .context import Context

LIMITS = {
    ("cpu", "quick"): RateLimits(4 << 20, 0.06, 0.3),
    ("cuda", "quick"): RateLimits(256 << 20, 0.06, 0.3),
    ("cpu", "full"): RateLimits(64 << 20, 0.5, 5.0),
    ("cuda", "full"): RateLimits(1 << 30, 0.5, 5.0),
}
LEVELS = ("all", "node", "across")
QUICK = ("all_reduce",)
FULL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
PAIR_BYTES = {"cpu": 1 << 20, "cuda": 64 << 20}
WARM_UP_BYTES = 64 << 10
TIMES = 3  # a pair's figure is the best of them: what else the machines do only makes it less
AGAIN = 0.6  # below this part of what is usual, a pair is measured once more
FEW_NODES = 4  # up to these, one pair at a time; of more nodes, those that do not share one together


def bandwidth(context: Context) -> dict[str, Any]:
    if context.world_size == 1:
        raise NotTriedError("there is one rank alone, which talks to nobody")
    nodes: dict[int, list[int]] = {}
    for rank, node in enumerate(context.gather(context.node_rank)):
        nodes.setdefault(node, []).append(rank)
    context.nccl_log.mark()  # later communicators number their ranks anew
    mode = "quick" if context.options.mode == "quick" else "full"
    limits = LIMITS[context.device.type, mode]
    curves = []
    own = {level.name: level for level in levels(context, nodes)}
    for name in LEVELS:
        for collective in (QUICK if mode == "quick" else FULL) if name in own else ():
            found = curve(context, own[name], collective, limits)
            if context.rank == own[name].ranks[0]:
                curves.append(found)
        dist.barrier()  # also of those who had nothing to do at this level
    for level in own.values():
        if level.group is not None:
            dist.destroy_process_group(level.group)
    facts: dict[str, Any] = {"curves": curves, "pairs": []}
    if len(nodes) > 1:
        facts["pairs"] = pairs(context, [ranks[0] for ranks in nodes.values()], list(nodes))
    return facts if context.rank == 0 else {"curves": curves}


def levels(context: Context, nodes: dict[int, list[int]]) -> list[Level]:
    """All ranks; then, where some node has several, those of this rank's node, and one of each node."""
    found = [Level("all", tuple(range(context.world_size)))]
    if len(nodes) == 1 or max(map(len, nodes.values())) == 1:
        return found
    own = nodes[context.node_rank]
    if len(own) > 1:
        found.append(Level("node", tuple(own), formed(own), context.node_rank))
    firsts = [ranks[0] for ranks in nodes.values()]
    if context.rank in firsts:
        found.append(Level("across", tuple(firsts), formed(firsts)))
    return found


def formed(ranks: list[int]) -> Any:
    """A group that only its own ranks wait for."""
    return dist.new_group(ranks, use_local_synchronization=True)


def pairs(context: Context, firsts: list[int], names: list[int]) -> list[dict[str, Any]]:
    """[{a, b, gbps}] with node ranks, of those that were tried; both ways at once, GB/s of each way."""
    rate: dict[tuple[int, int], float] = {}
    for meeting in rounds(len(firsts)):
        together = [meeting] if len(firsts) > FEW_NODES else [[pair] for pair in meeting]
        for several in together:
            rate.update(measured(context, firsts, names, several))
    usual = usual_of(rate)
    for pair in sorted(pair for pair in rate if rate[pair] < AGAIN * usual)[: 2 * len(firsts)]:
        rate[pair] = max(rate[pair], measured(context, firsts, names, [pair])[pair])
    return [{"a": names[a], "b": names[b], "gbps": digits(found)} for (a, b), found in sorted(rate.items())]


def measured(
    context: Context, firsts: list[int], names: list[int], meeting: list[tuple[int, int]]
) -> dict[tuple[int, int], float]:
    """What each of these pairs gets, known to all ranks."""
    own = 0.0
    for a, b in meeting:
        if context.rank in (firsts[a], firsts[b]):
            context.at(f"the pair of node ranks {names[a]} and {names[b]}")
            own = exchange(context, firsts[b] if context.rank == firsts[a] else firsts[a])
    rates = torch.zeros(context.world_size, dtype=torch.float64, device=context.device)
    rates[context.rank] = own
    dist.all_reduce(rates)
    # An end whose data has only gone to its own kernel takes it for sent: the other end knows better.
    return {(a, b): min(float(rates[firsts[a]]), float(rates[firsts[b]])) for a, b in meeting}


def exchange(context: Context, peer: int) -> float:
    """GB/s of each way, at best."""
    found = 0.0
    for size in (WARM_UP_BYTES, *[PAIR_BYTES[context.device.type]] * TIMES):
        sent = torch.ones(size // 4, dtype=torch.float32, device=context.device)
        received = torch.empty_like(sent)
        context.wait()
        began = time.perf_counter()
        sends = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, peer)]
        for request in dist.batch_isend_irecv(sends):
            request.wait()
        context.wait()
        if size > WARM_UP_BYTES:
            found = max(found, size / (time.perf_counter() - began) / 1e9)
    return found
