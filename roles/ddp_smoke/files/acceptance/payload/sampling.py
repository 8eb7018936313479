"""DistributedSampler: the shards of the ranks are disjoint and complete, and a new epoch has a new order.

With N samples and n ranks, each rank has ceil(N/n): the first ceil(N/n) * n - N samples of the order come twice; with
drop_last it has floor(N/n), and the rest is left out. Who does not call set_epoch gets the same order in each epoch
(https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler). What is counted over
padded shards counts some samples twice: an evaluation has to leave them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils.data import Dataset, DistributedSampler

if TYPE_CHECKING:
    from .context import Context

PER_RANK = 8
RIGHT = 3  # every third sample counts as classified correctly


class Numbers(Dataset[int]):
    """As many samples as said; the sampler asks for no more than that."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: int) -> int:
        return place


def sampling(context: Context) -> dict[str, Any]:
    whole = PER_RANK * context.world_size
    shards = []
    for size, drop_last in ((whole, False), (whole + 1, False), (whole + 1, True)):
        sampler = sampler_of(context, size, drop_last=drop_last)
        for epoch in (0, 1):
            sampler.set_epoch(epoch)
            shards.append(shard_of(sampler, size, epoch))
    plain = sampler_of(context, whole + 1, shuffle=False)
    shards.append(shard_of(plain, whole + 1, 0))
    untold = sampler_of(context, whole)
    facts = {"shards": shards, "repeats": list(untold) == list(untold)}
    context.at("all_reduce of what an evaluation counts")
    return facts | {"evaluation": evaluation(context, list(plain), whole + 1)}


def sampler_of(
    context: Context, size: int, *, shuffle: bool = True, drop_last: bool = False
) -> DistributedSampler[int]:
    return DistributedSampler(
        Numbers(size),
        num_replicas=context.world_size,
        rank=context.rank,
        shuffle=shuffle,
        seed=context.options.seed,
        drop_last=drop_last,
    )


def shard_of(sampler: DistributedSampler[int], size: int, epoch: int) -> dict[str, Any]:
    how = {"size": size, "drop_last": sampler.drop_last, "shuffle": sampler.shuffle, "epoch": epoch}
    return how | {"indices": list(sampler)}


def evaluation(context: Context, shard: list[int], size: int) -> dict[str, int]:
    """What all ranks count together, each without the samples that only pad its shard: those behind the last one."""
    real = [sample for place, sample in enumerate(shard) if place * context.world_size + context.rank < size]
    counted = [len(real), sum(sample % RIGHT == 0 for sample in real), len(shard)]
    sums = torch.tensor(counted, dtype=torch.int64, device=context.device)
    dist.all_reduce(sums)
    total, correct, padded = sums.tolist()
    return {"size": size, "total": total, "correct": correct, "with_padding": padded}
