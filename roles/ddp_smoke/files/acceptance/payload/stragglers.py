"""How long each rank computes by itself, without collectives: with them, every rank takes the time of the slowest.

Steps are timed in blocks of a tenth of a second: a quota lets a rank run at full speed for a part of each 100 ms, so
that most of the single steps would look as if there were none.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import TYPE_CHECKING, Any

from torch import nn

from . import cores, smi
from .model import batch, class_patterns, small_conv_net
from .world import gpu_uuid

if TYPE_CHECKING:
    from .context import Context

BLOCK_SECONDS = 0.1
BLOCKS = {"quick": 15, "full": 100, "soak": 100}
# A rank that is much slower than the others has fewer blocks, so that nobody waits for it.
SECONDS = {"quick": 3.0, "full": 30.0, "soak": 30.0}
FEWEST = 3
BATCH = {"cuda": 512, "cpu": 32}


class Steps:
    """Steps of a training as it is in `train`, but of this rank alone: `no_sync` without even the wrapper."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.size = BATCH[context.device.type]
        self.model = small_conv_net().to(context.device)
        self.patterns = class_patterns(context.options.seed)
        self.criterion = nn.CrossEntropyLoss()

    def step(self) -> list[float]:
        """Seconds: preparing the batch, by the clock and of the processor; the same of computing."""
        began = self.now()
        inputs, labels = batch(self.patterns, self.size, self.context.options.seed)
        prepared = self.now()
        self.model.zero_grad()
        self.criterion(self.model(inputs.to(self.context.device)), labels.to(self.context.device)).backward()
        self.context.wait()
        ended = self.now()
        return [after - before for before, after in zip((*began, *prepared), (*prepared, *ended), strict=True)]

    def now(self) -> tuple[float, float]:
        return time.perf_counter(), time.thread_time()

    def block(self, steps: int) -> list[float]:
        """The mean of so many steps."""
        taken = [self.step() for _ in range(steps)]
        return [sum(column) / steps for column in zip(*taken, strict=True)]


def stragglers(context: Context) -> dict[str, Any]:
    mode, cuda = context.options.mode, context.device.type == "cuda"
    steps = Steps(context)
    steps.block(3)
    # By the processor's time, so that a quota does not make the blocks of its rank smaller.
    first = steps.block(3)
    each = max(first[0] + first[2] if cuda else first[1] + first[3], 1e-6)
    count = max(1, int(BLOCK_SECONDS / each))
    ranks = cores.machines(context)  # all of them begin together, too
    context.at("its own steps")
    stopped, began = cores.throttled_seconds(), time.perf_counter()
    blocks: list[list[float]] = []
    # While it computes: at rest, a GPU's clocks say nothing.
    pool = ThreadPoolExecutor(1)
    looked = pool.submit(smi.look, gpu_uuid(context)) if cuda else None
    while len(blocks) < BLOCKS[mode] and (len(blocks) < FEWEST or time.perf_counter() - began < SECONDS[mode]):
        blocks.append(steps.block(count))
    seconds, after = time.perf_counter() - began, cores.throttled_seconds()
    names = ("data_ms", "data_cpu_ms", "compute_ms", "compute_cpu_ms")
    facts: dict[str, Any] = {
        name: round(median(column) * 1000, 3) for name, column in zip(names, zip(*blocks, strict=True), strict=True)
    }
    facts.update(samples=len(blocks) * count, shares_cores=cores.shared_on(ranks), **cores.facts())
    facts["machine"] = ranks[context.rank][0]
    facts["throttled_part"] = round((after - stopped) / seconds, 3) if None not in (after, stopped) else None
    if looked:
        facts["smi"] = looked.result()
    pool.shutdown()
    return facts
