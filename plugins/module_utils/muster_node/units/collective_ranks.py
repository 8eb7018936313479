"""Runs a short all-reduce with several ranks on one node.

looks/collective.py runs this program with the environment's own Python and the verb `start`. `start` then runs the
program once for each rank with the verb `rank`, and reports whether every rank computed the expected sum, and the
rates.
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

from ..tools import files
from ..tools.program import BOOTSTRAP, answer, answer_in, framed, own_text

# Bytes: small for latency, large for bandwidth. 25 MB is the size of a DDP gradient bucket; more on GPUs.
SIZES = {"gloo": (4_096, 4_000_000), "nccl": (4_096, 25_000_000, 256_000_000)}
ROUNDS = 5


def main() -> None:
    answer({"start": start, "rank": rank})
    dist: Any = sys.modules.get("torch.distributed")
    if dist is not None:
        dist.destroy_process_group()


def start(given: dict[str, Any]) -> dict[str, Any]:
    """Start one process for each rank, and return the result."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        ranks = [begin(given, number, folder) for number in range(given["nproc"])]
        failed = wait(ranks, begun + given["seconds"])
        for process in ranks:
            process.kill()
        return {**added_up(given, folder, failed), "seconds": round(time.monotonic() - begun, 2)}


def begin(given: dict[str, Any], number: int, folder: str) -> subprocess.Popen[bytes]:
    request = {"backend": given["backend"], "nproc": given["nproc"], "store": f"{folder}/store", "number": number}
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
    # Output goes into files: a rank with much output would block on a pipe that is not read.
    with Path(folder, f"{number}.out").open("w") as out, Path(folder, f"{number}.err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", BOOTSTRAP, "rank"],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            env=environment,
        )
    if process.stdin is not None:
        process.stdin.write(framed(own_text()) + json.dumps(request).encode())
        process.stdin.close()
    return process


def wait(ranks: list[subprocess.Popen[bytes]], deadline: float) -> tuple[int, int | None] | None:
    """Return the rank that failed first and its exit code (None: the rank did not end). Return None if all ranks
    succeeded."""
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


def added_up(given: dict[str, Any], folder: str, failed: tuple[int, int | None] | None) -> dict[str, Any]:
    if failed:
        number, code = failed
        said = files.text(f"{folder}/{number}.err") or ""
        words = said.strip().splitlines()
        end = f"did not finish within {given['seconds']:.0f} s" if code is None else f"ended with exit code {code}"
        why = f"rank {number} {end}" + (f": {words[-1][:300]}" if words else "")
        return {"why": why, "said": said[-2000:], "wrong": [], "speeds": []}
    results = []
    for number in range(given["nproc"]):
        result = answer_in(files.text(f"{folder}/{number}.out") or "")
        if result is None:
            return {"why": f"rank {number} returned no result", "said": "", "wrong": [], "speeds": []}
        results.append(result)
    wrong = [result["rank"] for result in results if not result["right"]]
    return {"why": "", "said": "", "wrong": wrong, "speeds": results[0]["speeds"]}


def rank(given: dict[str, Any]) -> dict[str, Any]:
    number = given["number"]
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
        # Integers, so that the sum is exact in any order. All elements and ranks have different values.
        base = torch.arange(count, device=device, dtype=torch.float32) % 1000
        expected = base * world + world * (world - 1) // 2
        tensor = base + number
        dist.all_reduce(tensor)
        right = right and bool(torch.equal(tensor, expected))
        begun = timer(torch, cuda)
        for _ in range(ROUNDS):
            dist.all_reduce(tensor)
        seconds = max(timer(torch, cuda) - begun, 1e-9) / ROUNDS
        # Bus bandwidth as in nccl-tests: independent of the number of ranks.
        speeds.append({"bytes": count * 4, "seconds": seconds, "busbw": count * 4 / seconds * 2 * (world - 1) / world})
    return {"rank": number, "right": right, "speeds": speeds}


def timer(torch: Any, cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    return time.monotonic()


if __name__ == "__main__":
    main()
