"""A user's training script: every rank computes the sum of all ranks and writes it into its working directory.

With a path as argument, the script waits for that file first.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
print(f"rank {rank} as uid {os.getuid()} knows the sum {total.item():.0f}", flush=True)
while len(sys.argv) > 1 and not Path(sys.argv[1]).exists():
    time.sleep(0.1)
Path(f"result-{rank}.txt").write_text(f"{total.item():.0f}\n")
dist.barrier()
dist.destroy_process_group()
