"""A training script with faults that environment variables select. It uses NCCL with a GPU, and Gloo otherwise.

STEPS, SIZE (floats of an all-reduce), PACE (seconds between steps), PG_TIMEOUT (seconds). CAPTURE: seconds for which
each step captures a CUDA graph. FAULT is what FAULT_RANK (default: 1) does at FAULT_STEP (default: 10): mismatch
(another collective), shape (another size), absent (sleeps), raise, exit. ifname: uses a missing interface from the
start. hog: allocates all but 200 MiB of the GPU memory before init_process_group. hold: allocates the same memory and
sleeps.
"""

import json
import os
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist

SLEEP = 600


def main() -> None:
    setting = os.environ.get
    steps, size = int(setting("STEPS", "20")), int(setting("SIZE", str(1 << 20)))
    rank = int(os.environ["RANK"])
    fault = setting("FAULT", "") if rank == int(setting("FAULT_RANK", "1")) else ""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if fault == "ifname":
        os.environ["NCCL_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "none0"
    if cuda:
        torch.cuda.set_device(device)
    if fault in ("hog", "hold"):
        free, total = torch.cuda.mem_get_info()
        held = torch.empty(free - (200 << 20), dtype=torch.uint8, device=device)
        print(f"rank {rank} holds {held.numel() >> 20} of {total >> 20} MiB", flush=True)
        if fault == "hold":
            time.sleep(SLEEP)
    limit = timedelta(seconds=float(setting("PG_TIMEOUT", "600")))
    dist.init_process_group("nccl" if cuda else "gloo", timeout=limit)
    world = dist.get_world_size()
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if cuda else "-"
    backend = dist.group.WORLD._get_backend(device).name()  # nccl or nccl2: both are init_process_group("nccl")
    print(f"rank {rank}/{world} on {socket.gethostname()}: {backend}, torch {torch.__version__}, NCCL {nccl}")
    began, times = time.monotonic(), []
    for step in range(1, steps + 1):
        if fault and step == int(setting("FAULT_STEP", "10")):
            print(f"rank {rank}: now {fault}", flush=True)
            misbehave(fault, size, world, device)
        numbers = torch.full((size,), float(rank + 1), device=device)
        at = time.monotonic()
        dist.all_reduce(numbers)
        total = numbers[0].item()
        if cuda and "CAPTURE" in os.environ:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                numbers * 2
                time.sleep(float(os.environ["CAPTURE"]))
        times.append(time.monotonic() - at)
        if total != world * (world + 1) / 2:
            raise RuntimeError(f"step {step}: the sum is {total}")
        rate = step / (time.monotonic() - began)
        event = {"event": "step", "step": step, "steps": steps, "loss": total, "samples_per_second": rate}
        print("@muster " + json.dumps(event), flush=True)
        time.sleep(float(setting("PACE", "0")))
    times.sort()
    print(f"rank {rank}: {steps} all-reduces of {size * 4 / 1e6:.1f} MB, median {times[len(times) // 2] * 1e3:.2f} ms")
    dist.destroy_process_group()


def misbehave(fault: str, size: int, world: int, device: torch.device) -> None:
    if fault == "mismatch":
        dist.all_gather([torch.empty(size, device=device) for _ in range(world)], torch.ones(size, device=device))
    elif fault == "shape":
        dist.all_reduce(torch.ones(size // 2, device=device))
    elif fault == "absent":
        time.sleep(SLEEP)
    elif fault == "raise":
        raise RuntimeError("this sample is broken")
    elif fault == "exit":
        os._exit(3)


if __name__ == "__main__":
    main()
