"""Measure how the cost of a network check grows with the number of nodes, compared with one task per pair of nodes.

PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/health_growth.py [NODES...]

Needs a running sandbox with at least this number of nodes (script/demo --nodes 16). SSH connections are already open,
as in a second run. Bytes include all headers of the traffic between controller and nodes in both directions, but not
traffic between nodes. Seconds depend on the machine, because it runs all nodes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from machines import find_machine, list_nodes, run_playbook

if TYPE_CHECKING:
    from machines import Machine, Result

TABLE = "muster_bench"
WAYS: dict[str, tuple[str, dict[str, object]]] = {
    "one task per pair": ("tests/bench/wait_for_loop.yml", {}),
    "net_probe": ("tests/integration/payloads/net_probe.yml", {"net_throughput": False}),
    "net_probe with throughput": ("tests/integration/payloads/net_probe.yml", {}),
    "health, all of it": ("playbooks/health.yml", {"health_gate": "warn"}),
}
CONNECT = "tests/integration/payloads/net_probe.yml"
TIMES = 3


@dataclass(frozen=True)
class Cost:
    seconds: float
    tasks: int
    sent: int


def main(numbers: list[int]) -> None:
    list_nodes(max(numbers))
    print("nodes", "way", "seconds", "tasks", "kB", sep="\t")
    for number in numbers:
        machines = [find_machine(f"node{place}") for place in range(1, number + 1)]
        limit = ",".join(["localhost", *(machine.name for machine in machines)])
        play(CONNECT, limit, {})
        for way, (playbook, requests) in WAYS.items():
            costs = [measure(machines, playbook, limit, requests) for _ in range(TIMES)]
            cost = sorted(costs, key=lambda cost: cost.seconds)[TIMES // 2]
            print(number, way, f"{cost.seconds:.1f}", cost.tasks, f"{cost.sent / 1000:.0f}", sep="\t", flush=True)


def play(playbook: str, limit: str, requests: dict[str, object]) -> Result:
    """Run a playbook in a new folder, because ansible-runner keeps settings from earlier runs in its folder."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_playbook(Path(folder), playbook, limit=limit, extravars=requests)
    if result.rc != 0:
        raise SystemExit(result.stdout)
    return result


def measure(machines: list[Machine], playbook: str, limit: str, requests: dict[str, object]) -> Cost:
    for machine in machines:
        count(machine)
    began = time.time()
    result = play(playbook, limit, requests)
    seconds = time.time() - began
    return Cost(seconds, tasks(result), sum(counted(machine) for machine in machines))


def tasks(result: Result) -> int:
    """Return the number of executed tasks. Every loop item counts as a task."""
    items = [event for event in result.events if event["event"] == "runner_item_on_ok"]
    whole = [event["event_data"] for event in result.events if event["event"] == "runner_on_ok"]
    return len(items) + sum("results" not in data["res"] for data in whole)


def count(machine: Machine) -> None:
    """Start counting the traffic between the machine and the controller."""
    controller = f"{machine.address.rpartition('.')[0]}.1"
    machine.inside("nft", "delete", "table", "inet", TABLE, check=False)
    lines = [f"add table inet {TABLE}"]
    for name, hook, match in (("in", "input", "saddr"), ("out", "output", "daddr")):
        lines.append(f"add chain inet {TABLE} {name} {{ type filter hook {hook} priority -300; }}")
        lines.append(f"add rule inet {TABLE} {name} ip {match} {controller} counter")
    machine.inside("nft", "\n".join(lines))


def counted(machine: Machine) -> int:
    shown = json.loads(machine.inside("nft", "--json", "list", "table", "inet", TABLE).stdout)["nftables"]
    machine.inside("nft", "delete", "table", "inet", TABLE)
    parts = [part for entry in shown for part in entry.get("rule", {}).get("expr", [])]
    return sum(int(part["counter"]["bytes"]) for part in parts if "counter" in part)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [2, 4, 8, 16])
