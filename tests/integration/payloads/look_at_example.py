"""Check in a separate process that the example's saved weights load, and that it rejects a hostile archive."""

from __future__ import annotations

import io
import pickle
import runpy
import sys
from pathlib import Path
from typing import Any

import torch

script, weights, witness = sys.argv[1:]
example = runpy.run_path(script)

model = example["build_model"](8)
model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
print("weights: loaded without DDP")


class Evil:
    """An object whose unpickling writes a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(witness),)


try:
    example["read_batch"](io.BytesIO(pickle.dumps(Evil())))
except pickle.UnpicklingError as refusal:
    print(f"pickle: refused, {refusal}")
print(f"witness: {'written' if Path(witness).exists() else 'nothing was run'}")
