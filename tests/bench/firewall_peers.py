"""Measure the cost of firewall rules for many peers: the role's single step, compared with one `ufw allow` per peer.

PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/firewall_peers.py [PEERS] [NODE]

Needs a running sandbox. ufw is enabled without rules before each measurement. The node keeps the last rules until
playbooks/network.yml runs again. Seconds depend on the machine and its load. The values in the other columns do not.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from machines import find_machine, list_nodes, run_playbook

if TYPE_CHECKING:
    from collections.abc import Callable

    from machines import Machine

ROLE = "tests/integration/payloads/firewall.yml"
LOOP = "tests/bench/ufw_loop.yml"
NETWORK = "198.18."  # reserved for benchmarks (RFC 2544)


@dataclass(frozen=True)
class Cost:
    seconds: float
    calls: int
    sent: int


def main(peers: int, name: str) -> None:
    list_nodes(2)
    machine = find_machine(name)
    addresses = [f"{NETWORK}{number // 250}.{number % 250 + 1}" for number in range(peers)]
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "peers.yml"
        hosts = {f"peer{number}": {"ansible_host": address} for number, address in enumerate(addresses)}
        inventory.write_text(yaml.safe_dump({"gpu_nodes": {"hosts": hosts}}))

        def play(playbook: str) -> None:
            result = run_playbook(
                Path(folder),
                playbook,
                limit=name,
                cmdline=f"-i {inventory} --forks {peers + 10}",
                extravars={"bench_peers": addresses},
            )
            if result.rc != 0:
                raise SystemExit(result.stdout)

        def shell() -> None:
            machine.ssh("; ".join(f"sudo ufw allow in on eth0 from {address}" for address in addresses))

        print(f"{peers} peers on {name}", "seconds", "commands as root", "kB over the network", sep="\t")
        ways: dict[str, Callable[[], None]] = {
            "ufw allow for each, in one shell": shell,
            "a task for each": lambda: play(LOOP),
            "role firewall": lambda: play(ROLE),
        }
        for way, go in ways.items():
            make_bare(machine)
            show(way, measure(machine, go))
            found = machine.inside("iptables-save").stdout.count(f"-A ufw-user-input -s {NETWORK}")
            if found != peers:
                raise SystemExit(f"{way}: {found} rules are in force, not {peers}")
        show("role firewall again, nothing to do", measure(machine, ways["role firewall"]))


def make_bare(machine: Machine) -> None:
    """Enable ufw with a rule for SSH only."""
    commands = "ufw --force disable; cp /usr/share/ufw/iptables/*.rules /etc/ufw/; ufw allow 22/tcp; ufw --force enable"
    machine.inside("sh", "-c", commands)


def measure(machine: Machine, go: Callable[[], None]) -> Cost:
    began, sent = time.time(), traffic(machine)
    go()
    seconds = time.time() - began
    journal = machine.inside("journalctl", "--quiet", f"--since=@{began:.3f}", "--identifier=sudo", "--output=cat")
    return Cost(seconds, journal.stdout.count("COMMAND="), traffic(machine) - sent)


def traffic(machine: Machine) -> int:
    """Return the bytes sent and received since the machine started."""
    files = [f"/sys/class/net/eth0/statistics/{name}_bytes" for name in ("rx", "tx")]
    return sum(int(word) for word in machine.inside("cat", *files).stdout.split())


def show(way: str, cost: Cost) -> None:
    print(way, f"{cost.seconds:.1f}", cost.calls, f"{cost.sent / 1000:.0f}", sep="\t", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2] if len(sys.argv) > 2 else "node1")
