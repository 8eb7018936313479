"""A machine's ports as the outsider or a peer sees them, with real listeners behind them."""

from __future__ import annotations

import json
import select
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drill import listening
from paths import ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        until(lambda: set(ports) <= listening(machine.container), PATIENCE, f"{machine.name} listens on {ports}")
        yield
    finally:
        machine.inside("systemctl", "stop", LISTENER)


@contextmanager
def conversation(caller: Machine, machine: Machine, port: int) -> Iterator[Callable[[str], str]]:
    """One connection between two machines that stays open: what is said over it comes back, or nothing does."""
    program = (PAYLOADS / "echo.py").read_text()
    unit = ["systemd-run", "--quiet", "--collect", f"--unit={LISTENER}-echo", "python3", "-c", program]
    machine.inside(*unit, "serve", str(port))
    try:
        until(lambda: port in listening(machine.container), PATIENCE, f"{machine.name} listens on {port}")
        argv = ["podman", "exec", "--interactive", caller.container]
        argv += ["python3", "-c", program, "call", machine.address, str(port)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as call:
            assert call.stdin
            assert call.stdout
            questions, answers = call.stdin, call.stdout

            def say(line: str) -> str:
                questions.write(f"{line}\n")
                ready, _, _ = select.select([answers], [], [], 5)
                return answers.readline().strip() if ready else ""

            yield say
    finally:
        machine.inside("systemctl", "stop", f"{LISTENER}-echo")


def link_local(machine: Machine) -> str:
    """Return the IPv6 address that a machine has unasked, as its neighbours write it; empty when IPv6 is off."""
    shown = json.loads(machine.inside("ip", "-json", "-6", "address", "show", "dev", "eth0", "scope", "link").stdout)
    addresses = [info["local"] for interface in shown for info in interface.get("addr_info", [])]
    return f"{addresses[0]}%eth0" if addresses else ""
