"""Every rank proves its place in a Slurm job: node rank, local rank, host and the sum over all ranks."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist

mode = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
own = {"rank": rank, "local": int(os.environ["LOCAL_RANK"]), "host": socket.gethostname()}
own |= {"node": int(os.environ["SLURM_NODEID"]), "job": os.environ["SLURM_JOB_ID"]}
every: list[dict[str, object]] = [{}] * size
dist.all_gather_object(every, own)
total = torch.ones(1) * (rank + 1)
dist.all_reduce(total)
each = int(os.environ["LOCAL_WORLD_SIZE"])
places = all((one["node"], one["local"]) == divmod(number, each) for number, one in enumerate(every))
if rank == 0:
    ok = places and total.item() == size * (size + 1) / 2
    sys.stdout.write("PROOF " + json.dumps({"ok": ok, "ranks": every}) + "\n")
    sys.stdout.flush()
dist.barrier()
if mode == "kill" and rank == size - 1:
    os.kill(os.getpid(), signal.SIGKILL)
if mode:
    time.sleep(600)
dist.destroy_process_group()
