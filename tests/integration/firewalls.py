"""Nodes of the sandbox with firewalls as before Muster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from machines import find_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine, Play

PLAYBOOK = "tests/integration/payloads/firewall.yml"
TASK = "Apply the firewall rules"


@contextmanager
def unmanaged(play: Play, variables: dict[str, Any]) -> Iterator[list[Machine]]:
    """Yield two nodes with ufw as delivered by a provider. Configure both nodes afterwards."""
    machines = [find_machine(name) for name in ("node1", "node2")]
    for machine in machines:
        bare(machine)
    yield machines
    for machine in machines:
        bare(machine)
    assert play(PLAYBOOK, extravars=variables).rc == 0


def bare(machine: Machine) -> None:
    """Reset ufw to the state of its package: off and without rules."""
    machine.inside(
        "sh", "-c", "ufw --force disable && cp /usr/share/ufw/iptables/*.rules /etc/ufw/ && chmod 640 /etc/ufw/*.rules"
    )


def state(machine: Machine) -> str:
    """Return the active firewall and its files."""
    command = "nft --stateless list ruleset; cat /etc/default/ufw /etc/ufw/*.conf /etc/ufw/*.rules"
    return machine.inside("sh", "-c", command).stdout
