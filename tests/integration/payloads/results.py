"""A rank without PyTorch that writes results into its working folder. SIGTERM makes it write a last checkpoint."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("--until", type=Path)
parser.add_argument("--steps", type=int, default=20_000)
parser.add_argument("--save", type=float, default=0.0, help="duration of the last checkpoint in seconds")
parser.add_argument("--code", type=int, default=0)
parser.add_argument("--broken", help="rank that raises at its third step")
options = parser.parse_args()
rank = os.environ["RANK"]
results = Path("results")
results.mkdir(exist_ok=True)


def write(name: str) -> None:
    (results / f"{name}-{rank}.json").write_text(json.dumps({"launch": os.environ["MUSTER_LAUNCH_ID"], "rank": rank}))


def save(*_signal: Any) -> None:
    print(f"rank {rank} saves", flush=True)
    time.sleep(options.save)
    write("last")
    sys.exit(0)


# A rank with an exit code ignores SIGTERM, so that its results are complete.
signal.signal(signal.SIGTERM, signal.SIG_IGN if options.code else save)
write("first")
if rank == "0":
    (results / "link").unlink(missing_ok=True)
    (results / "link").symlink_to("/etc/passwd")
for step in range(options.steps):
    if options.until and options.until.exists():
        break
    print(f"step {step}", flush=True)
    if step == 3 and rank == options.broken:
        raise ValueError(f"sample {step} is broken")
    time.sleep(0.1)
write("done")
sys.exit(options.code)
