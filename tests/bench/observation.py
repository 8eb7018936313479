"""Measure how much observation of the ranks (launch_observe) slows down a training run, in pairs of launches with and
without observation.

PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/observation.py [PAIRS] [STEPS]

Needs a running sandbox with PyTorch: one rank on each of two nodes. The two launches of a pair run one after the other,
in alternating order, so that other load affects both equally. Results are medians.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from statistics import median

from machines import NODES, list_nodes, run_playbook

PAYLOAD = Path(__file__).parent / "small_training.py"
SAID = re.compile(r"steps per second: ([\d.]+)")


def main(pairs: int, steps: int) -> None:
    list_nodes(2)
    found: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as name:
        for number in range(pairs):
            for observe in (True, False) if number % 2 == 0 else (False, True):
                found[observe].append(rate(Path(name), steps, observe=observe))
            with_it, without = (found[observe][-1] for observe in (True, False))
            load = os.getloadavg()[0]
            print(
                f"with {with_it:.1f}\twithout {without:.1f}\tratio {with_it / without:.3f}\tload {load:.0f}", flush=True
            )
    for observe, rates in found.items():
        word = "with" if observe else "without"
        print(f"{word}: {median(rates):.1f} steps/s (from {min(rates):.1f} to {max(rates):.1f})")
    ratios = [one / other for one, other in zip(found[True], found[False], strict=True)]
    print(f"ratio {median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f}, {pairs} pairs of {steps} steps)")


def rate(folder: Path, steps: int, *, observe: bool) -> float:
    """Return the steps per second printed by rank 0."""
    options = {
        "cluster_launch_nodes": list(NODES[:2]),
        "cluster_nproc_per_node": 1,
        "cluster_artifacts_dir": str(folder / "artifacts"),
        "launch_script_src": str(PAYLOAD),
        "launch_args": [str(steps)],
        "launch_observe": observe,
        "launch_probe": False,
    }
    result = run_playbook(folder, "playbooks/launch.yml", extravars=options)
    logs = sorted(folder.glob("artifacts/*/latest/logs/*/rank0.stdout.log"))
    said = SAID.search(logs[-1].read_text()) if logs else None
    if result.rc != 0 or said is None:
        raise SystemExit(result.stdout)
    return float(said[1])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, int(sys.argv[2]) if len(sys.argv) > 2 else 300)
