"""A machine's ports as the outsider or a peer sees them, with real listeners behind them."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drill import listening, until
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine

PAYLOADS = ROOT / "tests/integration/payloads"
EVERY_PORT = "1-65535"
LISTENER = "muster-test-listener"


@dataclass(frozen=True)
class Scan:
    """How the ports answered that were tried. What is neither open nor refused was dropped on the way."""

    open: list[int]
    refused: int


def scan(origin: Machine, address: str, *ports: int | str) -> Scan:
    """Connect from one machine to ports of an address."""
    argv = ["podman", "exec", "--interactive", origin.container, "python3", "-", address, *map(str, ports)]
    program = (PAYLOADS / "scan.py").read_text()
    done = subprocess.run(argv, input=program, check=True, capture_output=True, text=True, timeout=120)
    return Scan(**json.loads(done.stdout))


@contextmanager
def listeners(machine: Machine, ports: list[int]) -> Iterator[None]:
    """Something listens on these ports: one that is closed is then closed by the firewall, and not merely unused."""
    program = (PAYLOADS / "listen.py").read_text()
    unit = ["systemd-run", "--quiet", "--collect", f"--unit={LISTENER}", "python3", "-c", program]
    machine.inside(*unit, *map(str, ports))
    try:
        until(lambda: set(ports) <= listening(machine.container), 5, f"{machine.name} listens on {ports}")
        yield
    finally:
        machine.inside("systemctl", "stop", LISTENER)


def link_local(machine: Machine) -> str:
    """Return the IPv6 address that a machine has unasked, as its neighbours write it; empty when IPv6 is off."""
    shown = json.loads(machine.inside("ip", "-json", "-6", "address", "show", "dev", "eth0", "scope", "link").stdout)
    addresses = [info["local"] for interface in shown for info in interface.get("addr_info", [])]
    return f"{addresses[0]}%eth0" if addresses else ""
