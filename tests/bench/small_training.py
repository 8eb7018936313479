"""A small DDP training script that prints its steps per second. observation.py launches this script."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 20


def main(steps: int) -> None:
    dist.init_process_group(os.environ["MUSTER_BACKEND"])
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(64, 256), torch.randint(0, 10, (64,))
    began = 0.0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            dist.barrier()
            began = time.monotonic()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    dist.barrier()
    print(f"steps per second: {steps / (time.monotonic() - began):.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
