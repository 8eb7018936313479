"""Run the example on a simulated small GPU: rank 1 is out of memory with more than 20 samples per batch."""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

import torch

ROOM = 20
real = torch.nn.functional.cross_entropy


def short(outputs: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    if os.environ["RANK"] == "1" and len(outputs) > ROOM:
        raise torch.cuda.OutOfMemoryError(f"simulated GPU: no memory for {len(outputs)} samples")
    loss: torch.Tensor = real(outputs, *rest, **named)
    return loss


torch.nn.functional.cross_entropy = short
script = sys.argv.pop(1)
runpy.run_path(script, run_name="__main__")
