"""A rank without PyTorch that prints its steps until a file exists. --text: printed first."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20_000, help="half an hour, so that launches of killed tests end, too")
parser.add_argument("--until", type=Path)
parser.add_argument("--text", default="")
parser.add_argument("--code", type=int, default=0)
options = parser.parse_args()
if options.text:
    print(options.text, flush=True)
    print(options.text, file=sys.stderr, flush=True)
for step in range(options.steps):
    if options.until and options.until.exists():
        break
    print(f"step {step}", flush=True)
    time.sleep(0.1)
sys.exit(options.code)
