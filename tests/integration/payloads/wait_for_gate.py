"""A rank without PyTorch that prints a step and waits for a file. Other options are ignored."""

from __future__ import annotations

import sys
import time
from pathlib import Path

print("step 3", flush=True)
gate = Path(next(word.partition("=")[2] for word in sys.argv if word.startswith("--until=")))
while not gate.exists():
    time.sleep(0.1)
