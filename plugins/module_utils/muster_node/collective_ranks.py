"""The ranks of a short all-reduce on one node.

It is piped into the environment's own Python with a call of `start` behind it, which starts itself once for each
rank, with a call of `rank`. One line that begins with @muster-collective holds the result: whether every rank computed
what it should, and how fast.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MARK = "@muster-collective "
# Small enough for latency, large enough for bandwidth: what a gradient bucket of DDP has (25 MB), and more on GPUs.
SIZES = {"gloo": (4_096, 4_000_000), "nccl": (4_096, 25_000_000, 256_000_000)}
ROUNDS = 5


def start(text: str) -> None:
    """Start one process for each rank, and print what came of it."""
    given = json.loads(text)
    with tempfile.TemporaryDirectory() as folder:
        given["store"] = f"{folder}/store"
        result = wait(given, [begin(given, number) for number in range(given["nproc"])], time.monotonic())
    sys.stdout.write("\n" + MARK + json.dumps(result) + "\n")


def begin(given: dict[str, Any], number: int) -> subprocess.Popen[str]:
    told = {key: given[key] for key in ("backend", "nproc", "store", "seconds")}
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
    }
    if given["interface"]:
        environment |= {
            "GLOO_SOCKET_IFNAME": given["interface"],
            "NCCL_SOCKET_IFNAME": f"={given['interface']}",
        }
    process = subprocess.Popen(
        [sys.executable, "-I", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
    )
    if process.stdin is not None:
        process.stdin.write(f"{given['program']}\nrank({json.dumps(told)!r}, {number})\n")
        process.stdin.close()
        process.stdin = None
    return process


def wait(given: dict[str, Any], ranks: list[subprocess.Popen[str]], begun: float) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    why = said = ""
    for number, process in enumerate(ranks):
        try:
            out, err = process.communicate(timeout=max(1.0, given["seconds"] - 5 - (time.monotonic() - begun)))
        except subprocess.TimeoutExpired:
            why = why or f"rank {number} did not come to an end within {given['seconds']:.0f} s"
            break
        line = next((line for line in out.splitlines() if line.startswith(MARK)), "")
        if process.returncode or not line:
            words = err.strip().splitlines()
            why = why or f"rank {number} ended with {process.returncode}" + (f": {words[-1][:300]}" if words else "")
            said = said or err[-2000:]
            break
        results.append(json.loads(line.removeprefix(MARK)))
    for process in ranks:
        process.kill()
    return {
        "why": why,
        "said": said,
        "wrong": [result["rank"] for result in results if not result["right"]],
        "seconds": round(time.monotonic() - begun, 2),
        "speeds": results[0]["speeds"] if results else [],
    }


def rank(text: str, number: int) -> None:
    given = json.loads(text)
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    cuda = given["backend"] == "nccl"
    if cuda:
        torch.cuda.set_device(number)
    device = torch.device("cuda", number) if cuda else torch.device("cpu")
    world = given["nproc"]
    dist.init_process_group(given["backend"], init_method=Path(given["store"]).as_uri(), rank=number, world_size=world)
    right = True
    speeds = []
    for size in SIZES[given["backend"]]:
        count = size // 4
        # Whole numbers, so that the sum is exact whatever the order: each place differs, and so does each rank.
        base = torch.arange(count, device=device, dtype=torch.float32) % 1000
        expected = base * world + world * (world - 1) // 2
        tensor = base + number
        dist.all_reduce(tensor)
        right = right and bool(torch.equal(tensor, expected))
        begun = timer(torch, cuda)
        for _ in range(ROUNDS):
            dist.all_reduce(tensor)
        seconds = max(timer(torch, cuda) - begun, 1e-9) / ROUNDS
        # As nccl-tests count it: what each link carries, whatever the number of ranks.
        speeds.append({"bytes": count * 4, "seconds": seconds, "busbw": count * 4 / seconds * 2 * (world - 1) / world})
    sys.stdout.write("\n" + MARK + json.dumps({"rank": number, "right": right, "speeds": speeds}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


def timer(torch: Any, cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    return time.monotonic()
