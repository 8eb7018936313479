"""Simulate faults in the training of a rank: this module patches torch in one place and records each fault.

The module is installed next to torch, together with spoilt_training.pth, which imports it in every Python, and
spoilt_training.json: {"marks": a folder that ranks can write to, "faults": {rank: [name of a function below and its
arguments]}}. Only the worker process of a rank is affected. rank-N-FAULT.json in the folder records the values before
and after the fault.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

PLAN = Path(__file__).with_suffix(".json")


def mark(fault: str, before: Any, after: Any) -> None:
    folder = json.loads(PLAN.read_text())["marks"]
    said = {"rank": int(os.environ["RANK"]), "before": before, "after": after}
    Path(folder, f"rank-{os.environ['RANK']}-{fault}.json").write_text(json.dumps(said))


def weights(step: int) -> None:
    """Change a parameter of the rank after this step of the rank's first optimizer."""
    sgd = import_module("torch.optim").SGD
    original, steps = sgd.step, [0]

    def spoilt(self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        steps[0] += 1
        if steps[0] == step:
            value = self.param_groups[0]["params"][0].data.view(-1)[:1]
            before = float(value)
            value += 0.001
            mark("weights", before, float(value))
        return result

    sgd.step = spoilt


def shard(of: int) -> None:
    """Make the rank's samplers use another rank's shard."""
    sampler = import_module("torch.utils.data").DistributedSampler
    original = sampler.__init__

    def spoilt(self: Any, *arguments: Any, **named: Any) -> None:
        mark("shard", named["rank"], of)
        original(self, *arguments, **{**named, "rank": of})

    sampler.__init__ = spoilt


def epoch() -> None:
    """Make the rank's samplers ignore new epochs."""

    def spoilt(self: Any, number: int) -> None:
        mark("epoch", number, self.epoch)

    import_module("torch.utils.data").DistributedSampler.set_epoch = spoilt


def seed(other: int) -> None:
    """Make the rank start with another seed."""
    parser: Any = argparse.ArgumentParser
    original = parser.parse_args

    def spoilt(self: Any, *arguments: Any, **named: Any) -> Any:
        options = original(self, *arguments, **named)
        if hasattr(options, "seed"):
            mark("seed", options.seed, other)
            options.seed = other
        return options

    parser.parse_args = spoilt


def torn(size: int) -> None:
    """Truncate the first checkpoint that the rank renames into place, as if a file server had lost its page cache."""
    system: Any = os
    original, done = system.replace, list[Any]()

    def spoilt(source: Any, target: Any, **named: Any) -> None:
        original(source, target, **named)
        if not done and str(target).endswith(".pt"):
            done.append(target)
            before = Path(target).stat().st_size
            os.truncate(target, size)
            mark("torn", before, Path(target).stat().st_size)

    system.replace = spoilt


def loss(factor: float) -> None:
    """Scale the rank's losses by this factor, or make them NaN in mixed precision."""
    torch: Any = import_module("torch")
    functional: Any = import_module("torch.nn.functional")
    original = functional.cross_entropy

    def spoilt(*arguments: Any, **named: Any) -> Any:
        mixed = torch.is_autocast_enabled("cpu")
        result = original(*arguments, **named)
        changed = result * (float("nan") if mixed else factor)
        mark("loss-mixed" if mixed else "loss", str(float(result.detach())), str(float(changed.detach())))
        return changed

    functional.cross_entropy = spoilt


def random() -> None:
    """Make the rank ignore the random state in a checkpoint."""

    def spoilt(state: Any) -> None:
        mark("random", len(state), 0)

    torch: Any = import_module("torch")
    torch.set_rng_state = spoilt


FAULTS: dict[str, Any] = {
    "weights": weights,
    "shard": shard,
    "epoch": epoch,
    "seed": seed,
    "torn": torn,
    "loss": loss,
    "random": random,
}


def spoil() -> None:
    # The worker process of a rank is the one with a pipe.
    if "RANK" in os.environ and any(word.startswith("--pipe=") for word in sys.orig_argv):
        for name, *arguments in json.loads(PLAN.read_text())["faults"].get(os.environ["RANK"], []):
            FAULTS[name](*arguments)


if PLAN.exists():
    spoil()
