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
        begun = time.monotonic()
        ranks = [begin(given, number, folder) for number in range(given["nproc"])]
        failed = wait(ranks, begun + given["seconds"])
        for process in ranks:
            process.kill()
        result = {**told(given, folder, failed), "seconds": round(time.monotonic() - begun, 2)}
    sys.stdout.write("\n" + MARK + json.dumps(result) + "\n")


def begin(given: dict[str, Any], number: int, folder: str) -> subprocess.Popen[str]:
    told = {**{key: given[key] for key in ("backend", "nproc")}, "store": f"{folder}/store"}
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
    # What they say goes into files: a pipe that nobody reads would stop a rank that says much.
    with Path(folder, f"{number}.out").open("w") as out, Path(folder, f"{number}.err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-I", "-"], stdin=subprocess.PIPE, stdout=out, stderr=err, text=True, env=environment
        )
    if process.stdin is not None:
        process.stdin.write(f"{given['program']}\nrank({json.dumps(told)!r}, {number})\n")
        process.stdin.close()
    return process


def wait(ranks: list[subprocess.Popen[str]], deadline: float) -> tuple[int, int | None] | None:
    """Return the rank that failed first and how it ended, None for one that did not end; nothing when all went well."""
    while True:
        codes = [process.poll() for process in ranks]
        bad = [(number, code) for number, code in enumerate(codes) if code]
        if bad:
            return bad[0]
        if None not in codes:
            return None
        if time.monotonic() > deadline:
            return codes.index(None), None
        time.sleep(0.05)


def told(given: dict[str, Any], folder: str, failed: tuple[int, int | None] | None) -> dict[str, Any]:
    if failed:
        number, code = failed
        said = Path(folder, f"{number}.err").read_text(errors="replace")
        words = said.strip().splitlines()
        end = f"did not end within {given['seconds']:.0f} s" if code is None else f"ended with {code}"
        why = f"rank {number} {end}" + (f": {words[-1][:300]}" if words else "")
        return {"why": why, "said": said[-2000:], "wrong": [], "speeds": []}
    results = []
    for number in range(given["nproc"]):
        lines = Path(folder, f"{number}.out").read_text(errors="replace").splitlines()
        line = next((line for line in lines if line.startswith(MARK)), "")
        if not line:
            return {"why": f"rank {number} gave no answer", "said": "", "wrong": [], "speeds": []}
        results.append(json.loads(line.removeprefix(MARK)))
    wrong = [result["rank"] for result in results if not result["right"]]
    return {"why": "", "said": "", "wrong": wrong, "speeds": results[0]["speeds"]}


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
