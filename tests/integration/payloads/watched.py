"""A user's training script: the first attempt runs until it is killed, later attempts wait for a file.

Every rank computes the sum of all ranks, prints its attempt, and writes the sum into its working directory.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

attempt = int(os.environ["MUSTER_ATTEMPT"])
dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
print(f"rank {rank} in attempt {attempt} knows the sum {total.item():.0f}", flush=True)
while attempt == 1 or not Path(sys.argv[1]).exists():
    time.sleep(0.1)
Path(f"result-{rank}.txt").write_text(f"{total.item():.0f}\n")
dist.barrier()
dist.destroy_process_group()
