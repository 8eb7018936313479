"""The ports of a machine as seen by the outsider or a peer, with real listeners."""

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
    from collections.abc import Callable, Iterator, Mapping

    from machines import Machine

PAYLOADS = ROOT / "tests/integration/payloads"
EVERY_PORT = "1-65535"
LISTENER = "muster-test-listener"


@dataclass(frozen=True)
class Scan:
    """Result of a port scan. Ports that are neither open nor refused did not reply."""

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
    """Listen on these ports, so that only a firewall rule can explain a closed port."""
    program = (PAYLOADS / "listen.py").read_text()
    unit = ["systemd-run", "--quiet", "--collect", f"--unit={LISTENER}", "python3", "-c", program]
    machine.inside(*unit, *map(str, ports))
    try:
        until(lambda: set(ports) <= listening(machine.container), PATIENCE, f"{machine.name} listens on {ports}")
        yield
    finally:
        machine.inside("systemctl", "stop", LISTENER)


@contextmanager
def stubs(machine: Machine, named: Mapping[str, str]) -> Iterator[None]:
    """Run listeners under the names of other programs, each in a unit of this name. named: ports by name."""
    program = (PAYLOADS / "listen.py").read_text()
    try:
        for name, ports in named.items():
            unit = ["systemd-run", "--quiet", "--collect", f"--unit={name}", f"--setenv=NAME={name}"]
            machine.inside(*unit, "python3", "-c", program, *ports.split())
        tcp = {int(port) for ports in named.values() for port in ports.split() if "/" not in port}
        until(lambda: tcp <= listening(machine.container), PATIENCE, f"{machine.name} listens on {tcp}")
        yield
    finally:
        machine.inside("systemctl", "stop", *named, check=False)


@contextmanager
def conversation(caller: Machine, machine: Machine, port: int) -> Iterator[Callable[[str], str]]:
    """Keep a connection between two machines open. Its echo server returns each line."""
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
    """Return the IPv6 link-local address of a machine with its zone. Return "" if IPv6 is off."""
    shown = json.loads(machine.inside("ip", "-json", "-6", "address", "show", "dev", "eth0", "scope", "link").stdout)
    addresses = [info["local"] for interface in shown for info in interface.get("addr_info", [])]
    return f"{addresses[0]}%eth0" if addresses else ""
