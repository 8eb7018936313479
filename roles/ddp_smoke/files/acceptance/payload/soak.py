"""Hours of the same work, compared with itself: what a GPU gets wrong once a day is found here or nowhere.

In each round every rank replays training steps from the same state and compares the gradients bitwise, repeats its
products of matrices, and takes part in an all-reduce of integers that is checked exactly. It ends when its time is up
or something was wrong; its points are sent as events, so that they are there however it ends.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from . import cores, smi
from .gemm import Gemm, exact_sums
from .world import gpu_uuid

if TYPE_CHECKING:
    from .context import Context

WIDTH = {"cuda": 4096, "cpu": 128}
BATCH = {"cuda": 4096, "cpu": 64}
ELEMENTS = {"cuda": 1 << 22, "cpu": 1 << 14}
PRODUCTS = {"cuda": 4, "cpu": 2}
LEARNING_RATE = 0.01
ROUND_PART, ROUND_SECONDS = 1 / 100, (0.5, 10.0)  # of all the time, and at least and at most
# Below the least ddp_smoke_stall_timeout that makes sense, so that the supervisor sees life.
POINT_SECONDS, POINTS = 20.0, 4000  # of a rank the controller keeps 5000 events


class Replay:
    """A model that is products of matrices and sums, all of which repeat themselves bitwise on one device."""

    def __init__(self, context: Context) -> None:
        kind, self.context = context.device.type, context
        torch.manual_seed(context.options.seed + context.rank)
        width = WIDTH[kind]
        self.model = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
        ).to(context.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE)
        self.size = BATCH[kind]
        self.inputs = torch.randn(self.size, width, device=context.device)

    def gradients(self) -> list[torch.Tensor]:
        self.optimizer.zero_grad()
        with exact_sums(), torch.autocast(self.context.device.type, dtype=torch.bfloat16, enabled=self.mixed):
            loss = (self.model(self.inputs) - self.inputs).square().mean()
        with exact_sums():
            loss.backward()
        return [parameter.grad.clone() for parameter in self.model.parameters() if parameter.grad is not None]

    @property
    def mixed(self) -> bool:
        device = self.context.device
        return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 8

    def differing(self) -> list[str]:
        """The parameters whose gradients came out differently when the step was replayed; then one step is done."""
        first, again = self.gradients(), self.gradients()
        names = [name for name, _ in self.model.named_parameters()]
        self.optimizer.step()
        return [name for name, one, two in zip(names, first, again, strict=True) if not torch.equal(one, two)]


def soak(context: Context) -> dict[str, Any]:
    replay, gemm = Replay(context), Gemm(context)
    lasts = context.options.seconds
    length = min(max(lasts * ROUND_PART, ROUND_SECONDS[0]), ROUND_SECONDS[1])
    every = max(min(POINT_SECONDS, lasts / 100), lasts / POINTS)
    began, told, rounds, found = time.monotonic(), 0.0, 0, []
    ended = ""
    with ThreadPoolExecutor(1) as pool:
        while not ended:
            rounds += 1
            context.at(f"round {rounds}")
            due = rounds == 1 or time.monotonic() - began - told >= every
            # While it computes: at rest, a GPU's clocks say nothing.
            looked = pool.submit(look, context) if due else None
            rate, found = one_round(context, replay, gemm, length)
            elapsed = time.monotonic() - began
            ended = over(context, time_is_up=elapsed >= lasts, fault=bool(found))
            if looked or ended:
                told = elapsed
                said = looked.result() if looked else {}
                context.say("soak", **point(said, seconds=elapsed, round=rounds, samples_per_second=rate))
    context.wrong += [f"round {rounds}: {one['text']}" for one in found]
    return {
        "rounds": rounds,
        "seconds": round(time.monotonic() - began, 1),
        "ended": ended,
        "differences": [{"round": rounds, **one} for one in found],
        "shares_cores": cores.shared(context),
    }


def one_round(context: Context, replay: Replay, gemm: Gemm, length: float) -> tuple[float, list[dict[str, str]]]:
    """Samples a second of the replayed steps, and what was wrong."""
    found: list[dict[str, str]] = []
    began, steps = time.perf_counter(), 0
    while not found and (not steps or time.perf_counter() - began < length):
        steps += 1
        if names := replay.differing():
            text = f"a replayed step has different gradients ({', '.join(names[:3])})"
            found.append({"what": "replay", "text": text})
    context.wait()
    rate = 2 * steps * replay.size / (time.perf_counter() - began)
    for one in gemm.differences(PRODUCTS[context.device.type])[:1]:
        places = "1 element" if one["places"] == 1 else f"{one['places']} elements"
        text = f"a matrix product is wrong in {places}, first in row {one['row']}, column {one['column']}"
        found.append({"what": "gemm", "text": text})
    if wrong := wrong_places(context):
        found.append({"what": "all_reduce", "text": f"an all-reduce of integers is wrong in {wrong} elements"})
    return rate, found


def wrong_places(context: Context) -> int:
    context.at("all_reduce of a soak's round")
    places = torch.arange(ELEMENTS[context.device.type], dtype=torch.int64, device=context.device) % 997 + 1
    values = places * (context.rank + 1)
    dist.all_reduce(values)
    return int((values != places * (context.world_size * (context.world_size + 1) // 2)).sum())


def over(context: Context, *, time_is_up: bool, fault: bool) -> str:
    """Why all ranks end now, or nothing: none of them goes on without the others."""
    votes = torch.tensor([int(fault), int(time_is_up)], device=context.device)
    dist.all_reduce(votes)
    return "fault" if int(votes[0]) else "time" if int(votes[1]) else ""


def look(context: Context) -> dict[str, Any]:
    return smi.look(gpu_uuid(context)) if context.device.type == "cuda" else {"temperature_c": cores.heat()}


def point(said: dict[str, Any], **measured: float) -> dict[str, Any]:
    looks = ("temperature_c", "throttled", "ecc_corrected", "ecc_uncorrected", "sm_mhz")
    return {name: round(value, 1) for name, value in measured.items()} | {key: said.get(key) for key in looks}
