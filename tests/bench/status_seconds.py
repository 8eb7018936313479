"""Measure the duration of the status screen, compared with a ping of all nodes and with the list of launches. The
variants alternate on the same nodes, and run again with one silent node (a paused container).

PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/status_seconds.py [TIMES] [NODES...]

Needs a running sandbox with at least this number of nodes, with or without PyTorch. Seconds are the duration of the
whole command. Connections are already open (ControlPersist). Results are medians with minimum and maximum. The load
column shows how busy the machine was.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

from machines import find_machine, list_nodes
from paths import BIN, ENVIRONMENT, INVENTORY, ROOT

PLAYBOOK = BIN / "ansible-playbook"
WAYS = {
    "ansible gpu_nodes -m ping": (BIN / "ansible", "gpu_nodes", "-m", "ansible.builtin.ping"),
    "playbooks/jobs.yml": (PLAYBOOK, "playbooks/jobs.yml"),
    "playbooks/status.yml": (PLAYBOOK, "playbooks/status.yml"),
}


def main(times: int, numbers: list[int]) -> None:
    list_nodes(max(numbers))
    print("nodes", "silent", "command", "seconds", "load", sep="\t")
    for number in numbers:
        limit = ",".join(f"node{place}" for place in range(1, number + 1))
        compare(number, 0, [*WAYS], limit, times)
        last = find_machine(f"node{number}")
        last.podman("pause")
        try:
            compare(number, 1, ["playbooks/status.yml"], limit, times)
        finally:
            last.podman("unpause")


def compare(number: int, silent: int, ways: list[str], limit: str, times: int) -> None:
    found: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(times + 1):
        for way in ways:
            seconds = measure(way, limit)
            if turn:  # the first round opens connections
                found[way].append(seconds)
    for way, values in found.items():
        text = f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})"
        print(number, silent, way, text, f"{os.getloadavg()[0]:.1f}", sep="\t", flush=True)


def measure(way: str, limit: str) -> float:
    began = time.monotonic()
    argv = [*WAYS[way], "-i", INVENTORY, "--limit", limit]
    done = subprocess.run(argv, cwd=ROOT, env={**os.environ, **ENVIRONMENT}, check=False, capture_output=True)
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{way} ended with {done.returncode}: {done.stdout.decode()}{done.stderr.decode()}")
    return seconds


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(given[0] if given else 5, given[1:] or [2])
