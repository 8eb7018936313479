"""One GPU at a time, or the rank's share of the CPU: what it computes, and how fast it computes and moves data.

The ranks of a node take turns for what they share: a CPU's cores, and the ways between GPUs and memory.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import torch

from . import dcgm, smi
from .gemm import Gemm
from .turns import free, turn
from .world import gpu_uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from .context import Context

SAMPLES = {"quick": 5, "full": 20, "soak": 20}
CHECKED = {"quick": 3, "full": 50, "soak": 50}  # products of each kind
# Bytes: beyond the caches, which are up to 256 MB of a GPU's and a server's CPU.
COPIED = {"cuda": 1 << 30, "cpu": 1 << 26}
PINNED = 1 << 28
BUSY_SECONDS = 1.0  # nvidia-smi takes about half of it
LIFE_SECONDS = 20.0  # a launch without a line from any rank for ddp_smoke_stall_timeout is ended
SAMPLE_SECONDS = 0.02
# Seconds that one rank's turn takes at most; further ones wait as many times as long.
TURN_SECONDS = {"quick": 8.0, "full": 20.0, "soak": 20.0}
# By level; quick leaves them out, since level 1 takes some 10 s. Level 2 takes two minutes, 3 half an hour.
DIAGNOSTICS = {"full": (2, 240.0), "soak": (3, 2400.0)}


def device(context: Context) -> dict[str, Any]:
    mode, local = context.options.mode, context.local_rank
    cuda = context.device.type == "cuda"
    with turn(f"computes-{local}", TURN_SECONDS[mode]):
        if cuda:
            facts = {"model": torch.cuda.get_device_name(context.device), "gpu_uuid": gpu_uuid(context)}
            facts.update(computed(context))
        else:
            with shared(context, "cores"):
                facts = {"model": "cpu", "gpu_uuid": "", **computed(context)}
        if cuda:
            with shared(context, "buses") as mine:
                facts.update(moved(context), alone=mine)
    if cuda:
        facts["dcgm"] = diagnosed(context)
    return facts


def shared(context: Context, what: str) -> Any:
    """This rank's turn for what its node's ranks share; bounded, since one that hangs keeps it until it is killed."""
    context.at(f"waiting for its turn ({what})")
    return turn(what, TURN_SECONDS[context.options.mode] * context.local_world_size)


def computed(context: Context) -> dict[str, Any]:
    mode = context.options.mode
    context.at("products of matrices")
    gemm = Gemm(context)
    facts = gemm.rate(SAMPLES[mode])
    found = gemm.differences(CHECKED[mode])
    facts.update(gemm_checked=2 * CHECKED[mode], gemm_wrong=found[:5])
    context.wrong += [sentence(one, facts) for one in found[:3]]
    if context.device.type == "cuda":
        context.at("nvidia-smi, while it computes")
        gemm.busy(BUSY_SECONDS, gemm.seconds(4) / 4)
        facts["smi"] = smi.look(gpu_uuid(context))
        context.wait()
    del gemm
    context.at("copies in its memory")
    facts.update(copied(context))
    if context.device.type == "cuda":
        torch.cuda.empty_cache()
    return facts


def sentence(found: dict[str, Any], facts: dict[str, Any]) -> str:
    how = "differs from its own repetition" if found["how"] == "repeated" else "is not exact in integers"
    places = "1 place" if found["places"] == 1 else f"{found['places']} places"
    what = f"a product of {facts['gemm_dtype']} matrices of {facts['gemm_size']} {how}"
    return f"{what} at {places}, first in row {found['row']}, column {found['column']}"


def copied(context: Context) -> dict[str, Any]:
    """Read and written bytes are both counted: a copy of 1 GB moves 2."""
    size = COPIED[context.device.type]
    if context.device.type == "cuda":
        size = min(size, torch.cuda.mem_get_info(context.device)[0] // 4)
    source = torch.zeros(size, dtype=torch.uint8, device=context.device)
    target = torch.ones_like(source)
    median, spread = gbps(context, lambda: target.copy_(source), 2 * size)
    return {"memory_gbps": median, "memory_spread": spread}


def moved(context: Context) -> dict[str, Any]:
    """Between the host's pinned memory and the GPU, and to other GPUs of the node."""
    context.at("copies between host and GPU")
    facts: dict[str, Any] = {}
    on_gpu = torch.zeros(PINNED, dtype=torch.uint8, device=context.device)
    try:
        on_host = torch.zeros(PINNED, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as problem:
        facts["h2d_why"] = str(problem).partition("\n")[0][:200]
    else:
        facts["h2d_gbps"], facts["h2d_spread"] = gbps(context, lambda: on_gpu.copy_(on_host, non_blocking=True), PINNED)
        facts["d2h_gbps"], facts["d2h_spread"] = gbps(context, lambda: on_host.copy_(on_gpu, non_blocking=True), PINNED)
    facts["p2p"] = [peer_rate(context, on_gpu, peer) for peer in peers(context)]
    return facts


def peers(context: Context) -> list[int]:
    """The GPUs of the node's other ranks: the next one in quick mode, which makes a ring; all of them otherwise."""
    count = min(torch.cuda.device_count(), context.local_world_size)
    others = [(context.local_rank + step) % count for step in range(1, count)]
    return others[:1] if context.options.mode == "quick" else others


def peer_rate(context: Context, source: torch.Tensor, peer: int) -> dict[str, Any]:
    context.at(f"copies to GPU {peer}")
    target = torch.empty_like(source, device=torch.device("cuda", peer))

    def copy() -> None:
        target.copy_(source, non_blocking=True)

    median, _ = gbps(context, copy, source.numel(), peer)
    direct = torch.cuda.can_device_access_peer(context.device, peer)
    return {"peer": peer, "gbps": median, "direct": bool(direct)}


def gbps(context: Context, act: Callable[[], Any], size: int, peer: int | None = None) -> tuple[float, float]:
    """The median of the samples in GB/s (1e9 bytes), and how far they are apart as a part of it."""

    def seconds(times: int) -> float:
        context.wait()
        began = time.perf_counter()
        for _ in range(times):
            act()
        context.wait()
        if peer is not None:
            torch.cuda.synchronize(peer)
        return max(time.perf_counter() - began, 1e-9)

    seconds(1)
    times = max(1, int(SAMPLE_SECONDS / seconds(1)))
    rates = sorted(size * times / seconds(times) / 1e9 for _ in range(SAMPLES[context.options.mode]))
    middle = rates[len(rates) // 2]
    return round(middle, 2), round((rates[-1] - rates[0]) / middle, 4)


def diagnosed(context: Context) -> dict[str, Any]:
    """DCGM's diagnostics of all the node's GPUs, by one rank, while the others have nothing to do."""
    if context.local_rank:
        return {"skipped": "local rank 0 has them done"}
    if context.options.mode not in DIAGNOSTICS:
        return {"skipped": f"left out in {context.options.mode} mode"}
    level, seconds = DIAGNOSTICS[context.options.mode]
    until = time.monotonic() + TURN_SECONDS[context.options.mode] * context.local_world_size
    context.at("waiting for the node's other ranks")
    others = range(1, context.local_world_size)
    while not all(free(f"computes-{local}") for local in others) and time.monotonic() < until:
        time.sleep(0.1)
    context.at(f"DCGM's diagnostics, level {level}")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(dcgm.run, level, seconds)
        while not answer.done():
            context.say("diagnosing", level=level)
            wait([answer], LIFE_SECONDS)
        return answer.result()
