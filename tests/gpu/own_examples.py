"""Run the examples on a real GPU: they must train, resume from a checkpoint, and be reproducible where documented."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--epochs=2", "--samples=4096")
SECONDS = 180


def torchrun(program: str, *words: str) -> tuple[int, str, float]:
    argv = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=1",
        str(EXAMPLES / program),
        *words,
    ]
    began = time.monotonic()
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=SECONDS, env={**os.environ})
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began


def run(out: Path, say: Callable[[str], None]) -> bool:
    """Run part 7 of run.py: the examples."""
    base = out / "examples"
    base.mkdir(parents=True, exist_ok=True)
    rows = [
        ("plain", "cifar10/train.py", (*SMALL, f"--output={base / 'plain'}")),
        ("resumed", "cifar10/train.py", ("--resume", *SMALL, f"--output={base / 'plain'}")),
        ("one", "cifar10/train.py", (*SMALL, "--deterministic", f"--output={base / 'one'}")),
        ("two", "cifar10/train.py", (*SMALL, "--deterministic", f"--output={base / 'two'}")),
        (
            "fp16",
            "cifar10/train.py",
            (*SMALL, "--precision=fp16", "--compress=powersgd", f"--output={base / 'fp16'}"),
        ),
        ("fsdp2_save", "fsdp2_checkpoint.py", ("save", str(base / "fsdp2"))),
        ("fsdp2_load", "fsdp2_checkpoint.py", ("load", str(base / "fsdp2"))),
    ]
    held = True
    for name, program, words in rows:
        code, text, seconds = torchrun(program, *words)
        (base / f"{name}.log").write_text(text)
        last = text.strip().rpartition("\n")[2][:300]
        say(f"  {name}: ended with {code} after {seconds:.1f} s; {last}")
        held = held and code == 0
    digests = [digest((base / f"{name}.log").read_text()) for name in ("one", "two")]
    same = digests[0] == digests[1] != ""
    say(f"  --deterministic twice: {'the same' if same else 'DIFFERS'}: {' '.join(digests)}")
    return held and same


def digest(text: str) -> str:
    found = re.findall(r'"parameters_sha256": "(\w+)"', text)
    return found[-1] if found else ""
