"""Measure how the cost of a second run on finished nodes grows with the nodes, compared with a full run and an older
commit.

PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/rerun.py [--before FOLDER] [--times N] [NODES...]

Needs a running sandbox with at least this number of nodes, on which all steps have run (script/demo --nodes 8). FOLDER
is a checkout of the commit to compare with (git worktree add). The benchmark adds links to this checkout's .venv and
.sandbox. The variants alternate, so that load affects all of them. Compare columns, and do not quote single figures.
Processor seconds are those of ansible-playbook and its children on this machine, without the nodes.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from health_growth import count, counted
from machines import find_machine, list_nodes
from paths import BIN, ENVIRONMENT, INVENTORY, ROOT

if TYPE_CHECKING:
    from machines import Machine

STEPS = "inspect,baseline,network,gpu_stack,pytorch"
RECAP = re.compile(r"^(\S+) +: ok=(\d+) +changed=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """The cost of a run. tasks: number of tasks executed on a node or once for all nodes. sent: bytes transferred
    between controller and nodes."""

    seconds: float
    processor: float
    tasks: int
    sent: int


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("numbers", type=int, nargs="*", default=[1, 2, 4, 8])
    asked.add_argument("--before", type=Path)
    asked.add_argument("--times", type=int, default=3)
    given = asked.parse_args()
    ways = {"now": (ROOT, []), "full=true": (ROOT, ["-e", "full=true"])}
    if given.before:
        ways["before"] = (given.before, [])
    list_nodes(max(given.numbers))
    print("nodes", "way", "seconds", "processor", "tasks", "kB", "load", sep="\t")
    for number in given.numbers:
        machines = [find_machine(f"node{place}") for place in range(1, number + 1)]
        play(ROOT, machines, [])  # opens connections and updates records of checks
        costs: dict[str, list[Cost]] = {way: [] for way in ways}
        for _ in range(given.times):
            for way, (folder, words) in ways.items():
                costs[way].append(measure(folder, machines, words))
        for way, several in costs.items():
            middle = [statistics.median(getattr(cost, name) for cost in several) for name in Cost.__annotations__]
            seconds, processor, tasks, sent = middle
            shown = (f"{seconds:.1f}", f"{processor:.1f}", f"{tasks:.0f}", f"{sent / 1000:.0f}")
            print(number, way, *shown, f"{os.getloadavg()[0]:.0f}", sep="\t", flush=True)


def measure(folder: Path, machines: list[Machine], words: list[str]) -> Cost:
    for machine in machines:
        count(machine)
    used, began = spent(), time.monotonic()
    text = play(folder, machines, words)
    seconds, processor = time.monotonic() - began, spent() - used
    tasks = sum(int(ok) for _, ok, _ in RECAP.findall(text))
    return Cost(seconds, processor, tasks, sum(counted(machine) for machine in machines))


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def play(folder: Path, machines: list[Machine], words: list[str]) -> str:
    """Run all steps on these nodes from a checkout. Raise an error if a step changes anything."""
    limit = ",".join(["localhost", *(machine.name for machine in machines)])
    command = [
        str(BIN / "ansible-playbook"),
        "site.yml",
        "-i",
        str(INVENTORY),
        "--tags",
        STEPS,
        "--limit",
        limit,
        *words,
    ]
    environment = {**os.environ, **ENVIRONMENT, "ANSIBLE_CONFIG": str(folder / "ansible.cfg")}
    del environment["ANSIBLE_CALLBACK_PLUGINS"]  # use the plugins of that checkout
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    changed = [name for name, _, number in RECAP.findall(done.stdout) if number != "0"]
    if done.returncode or changed:
        raise SystemExit(f"{done.stdout}{done.stderr}")
    return str(done.stdout)


if __name__ == "__main__":
    main()
