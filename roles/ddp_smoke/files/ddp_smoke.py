"""The smoke payload: trains a small ConvNet under DDP on synthetic data and reports facts, no judgements.

Every rank prints lines `@muster {...}`, which the supervisor carries to the controller; there they are judged against
the plan (plugins/module_utils/muster/smoke.py). Runs by hand too: torchrun --nproc-per-node=2 ddp_smoke.py --steps 5
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

CLASSES = 10
PERIOD = 997
REDUCE_SIZES = (1, 1023, 1 << 18)
ENDS = 5  # losses averaged at the beginning and at the end: one step's loss is noise


def say(event: str, **facts: object) -> None:
    print("@muster " + json.dumps({"event": event, **facts}), flush=True)


def machine() -> str:
    """What tells two machines apart, containers included: their boot and their network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"


def small_conv_net() -> nn.Module:
    # GroupNorm, not BatchNorm: no statistics of its own that would differ between ranks.
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, stride=2),
        nn.GroupNorm(8, 32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.GroupNorm(8, 64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1, stride=2),
        nn.GroupNorm(8, 64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def batch(patterns: torch.Tensor, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """CIFAR-shaped samples: a class's pattern and noise; made from the seed alone, so no rank needs a download."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (size,), generator=generator)
    noise = torch.randn(size, 3, 32, 32, generator=generator)
    return patterns[labels] + noise, labels


def exact_all_reduce(device: torch.device, rank: int, world_size: int) -> list[dict[str, int]]:
    """Integers, so that equality is exact: place i holds (i mod 997 + 1) * (rank + 1) before."""
    found = []
    for size in REDUCE_SIZES:
        places = torch.arange(size, dtype=torch.int64, device=device) % PERIOD + 1
        values = places * (rank + 1)
        dist.all_reduce(values)
        expected = places * (world_size * (world_size + 1) // 2)
        mismatches = int((values != expected).sum())
        found.append({"size": size, "sum": int(values.sum()), "mismatches": mismatches})
    return found


def parameters_sha256(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode())
        digest.update(bytes(parameter.detach().cpu().contiguous().view(torch.uint8).flatten().tolist()))
    return digest.hexdigest()


def train(model: nn.Module, device: torch.device, rank: int, options: argparse.Namespace) -> tuple[list[float], float]:
    """Returns every step's loss on this rank, and this rank's samples per second without the first step."""
    patterns = torch.randn(CLASSES, 3, 32, 32, generator=torch.Generator().manual_seed(options.seed))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    losses = []
    began = time.monotonic()
    for step in range(options.steps):
        # A seed of its own for every rank and step: the shards are disjoint.
        seed = options.seed + 1 + step * dist.get_world_size() + rank
        inputs, labels = (part.to(device) for part in batch(patterns, options.batch_size, seed))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if step == 0:
            began = time.monotonic()  # the first step also sets up buckets and connections
        elif rank == 0:
            rate = dist.get_world_size() * options.batch_size * step / (time.monotonic() - began)
            say("step", step=step + 1, steps=options.steps, loss=losses[-1], samples_per_second=round(rate, 1))
    seconds = time.monotonic() - began
    return losses, options.batch_size * (options.steps - 1) / seconds


@record
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one collective")
    options = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    backend = os.environ.get("MUSTER_BACKEND", "nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", local_rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=options.timeout))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    say(
        "hello",
        rank=rank,
        local_rank=local_rank,
        node_rank=int(os.environ["GROUP_RANK"]),
        world_size=world_size,
        backend=dist.get_backend(),
        hostname=socket.gethostname(),
        machine=machine(),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        torch=torch.__version__,
    )
    reduced = exact_all_reduce(device, rank, world_size)
    torch.manual_seed(options.seed + rank)  # DDP must make the ranks equal, not the seed
    wrapped = DistributedDataParallel(
        small_conv_net().to(device), device_ids=[local_rank] if device.type == "cuda" else None
    )
    losses, rate = train(wrapped, device, rank, options)
    ends = min(ENDS, max(1, len(losses) // 2))
    say(
        "result",
        rank=rank,
        all_reduce=reduced,
        parameters_sha256=parameters_sha256(wrapped.module),
        loss_first=sum(losses[:ends]) / ends,
        loss_last=sum(losses[-ends:]) / ends,
        samples_per_second=round(rate, 1),
    )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
