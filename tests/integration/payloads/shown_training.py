"""The training script that the docs use in /srv/project and ~/project. It accepts any options.

The script runs as long as the file `hold` exists next to its copy on the node.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

HOLD = Path("/srv/project/hold")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("output"))
    options, _ = parser.parse_known_args()
    dist.init_process_group("gloo")
    weight = torch.zeros(4)
    epoch = 0
    while epoch < options.epochs or HOLD.exists():
        epoch += 1
        gradient = torch.full((4,), float(dist.get_rank() + 1))
        dist.all_reduce(gradient)
        weight -= 0.1 * gradient / dist.get_world_size()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} weight {weight[0]:.3f}", flush=True)
        if epoch >= options.epochs:
            dist.barrier()
            time.sleep(0.5)
    if os.access(".", os.W_OK):  # the working folder of a module may belong to root
        for name in (options.output / "weights.pt", Path("results/last.pt")):
            name.parent.mkdir(parents=True, exist_ok=True)
            torch.save(weight, name)
        Path("results/figures.json").write_text(json.dumps({"epochs": epoch}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
