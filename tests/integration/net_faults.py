"""Inject real network faults between nodes, prove that each fault is in effect, and remove it.

Packet filter rules go into a separate table. The rules of the role firewall and of others stay unchanged.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from outside import listeners, scan
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine

TABLE = "muster_fault"
PORT = 29500
EPHEMERAL = 40001
# A Python with a wrong clock. The sandbox machines share the clock of the test machine.
CLOCK = "/usr/local/bin/muster-test-python"
WRONG_CLOCK = """\
#!/usr/bin/python3 -I
import os, sys, time
if "-c" not in sys.argv:  # it is no program of Muster's
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv[1:]])
right = time.time
time.time = lambda: right() + {seconds}
code = sys.argv[sys.argv.index("-c") + 1]
sys.argv = ["-c", *sys.argv[sys.argv.index("-c") + 2 :]]
exec(code, {{"__name__": "__main__"}})
"""
# A Python that holds back its answer after the probe, as long as the gate exists.
HELD_PYTHON = "/usr/local/bin/muster-test-held-python"
GATE = "/run/muster-test-gate"
HELD_ANSWER = f"""\
#!/bin/sh
for verb; do :; done
[ "$verb" = probe ] || exec /usr/bin/python3 "$@"
answer=$(/usr/bin/python3 "$@")
echo called >{GATE}
while [ -e {GATE} ]; do sleep 0.1; done
echo "$answer"
"""


@contextmanager
def rules(machine: Machine, *wanted: str, hook: str = "input") -> Iterator[None]:
    """Add filter rules for incoming packets, or for another hook. Each rule must have matched a packet when the block
    ends."""
    lines = [f"add table inet {TABLE}"]
    lines.append(f"add chain inet {TABLE} in {{ type filter hook {hook} priority -10; }}")
    lines += [f"add rule inet {TABLE} in {rule}" for rule in wanted]
    machine.inside("nft", "\n".join(lines))
    try:
        yield
        hits = [packets(rule) for rule in listed(machine)]
        assert len(hits) == len(wanted)
        assert all(hits), f"a rule matched no packet on {machine.name}: {hits}"
    finally:
        machine.inside("nft", f"delete table inet {TABLE}")


def listed(machine: Machine) -> list[dict[str, list[dict[str, dict[str, int]]]]]:
    shown = json.loads(machine.inside("nft", "--json", "list", "table", "inet", TABLE).stdout)["nftables"]
    return [entry["rule"] for entry in shown if "rule" in entry]


def packets(rule: dict[str, list[dict[str, dict[str, int]]]]) -> int:
    return sum(part["counter"]["packets"] for part in rule["expr"] if "counter" in part)


@contextmanager
def shut(machine: Machine, caller: Machine, port: int, match: str, verdict: str, *, refused: bool) -> Iterator[None]:
    """Block a port for one caller, verified by a scan of a real listener. Other callers still connect."""
    with rules(machine, f"tcp dport {match} counter {verdict}"):
        with listeners(machine, [port]):
            seen = scan(caller, machine.address, port)
            assert seen.open == []
            assert bool(seen.refused) == refused
            assert scan(caller, machine.address, 22).open == [22]
        yield


@contextmanager
def one_way(machine: Machine, caller: Machine) -> Iterator[None]:
    """Drop connections from the caller to the machine. Connections in the other direction still work."""
    with rules(machine, f"ip saddr {caller.address} ct state new counter drop"):
        with listeners(machine, [PORT]), listeners(caller, [PORT]):
            assert scan(caller, machine.address, PORT).open == []
            assert scan(machine, caller.address, PORT).open == [PORT]
        yield


@contextmanager
def black_hole(machine: Machine, callers: list[Machine], largest: int) -> Iterator[None]:
    """Drop packets from these callers that exceed a size, without sending an ICMP message."""
    addresses = ", ".join(caller.address for caller in callers)
    with rules(machine, f"ip saddr {{ {addresses} }} meta length > {largest} counter drop"):
        for size, arrives in ((largest, True), (largest + 1, False)):
            assert echoes(callers[0], machine, size) == arrives
        yield


def echoes(caller: Machine, machine: Machine, size: int) -> bool:
    """Return whether a packet of this total size is answered."""
    ping = ["ping", "-c", "1", "-W", "1", "-M", "do", "-s", str(size - 28), machine.address]
    return caller.inside(*ping, check=False).returncode == 0


@contextmanager
def loss(machine: Machine, callers: list[Machine], every: int) -> Iterator[None]:
    """Drop every n-th packet of each caller. The loss is deterministic, so that every run is affected."""
    with rules(machine, *(f"ip saddr {caller.address} numgen inc mod {every} 0 counter drop" for caller in callers)):
        flood = ["ping", "-q", "-c", "400", "-i", "0.002", "-W", "1", machine.address]
        received = callers[0].inside(*flood, check=False).stdout.split(" received")[0].rpartition(" ")[2]
        assert abs(400 - int(received) - 400 / every) <= 1
        yield


@contextmanager
def slow(machine: Machine, rate: str) -> Iterator[None]:
    """Limit the outgoing bandwidth of the machine."""
    wanted = ["root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms"]
    machine.inside("tc", "qdisc", "add", "dev", "eth0", *wanted)
    try:
        yield
        [shown] = json.loads(machine.inside("tc", "-json", "-statistics", "qdisc", "show", "dev", "eth0").stdout)
        assert shown["kind"] == "tbf"
        assert shown["overlimits"] > 0
    finally:
        machine.inside("tc", "qdisc", "delete", "dev", "eth0", "root")


@contextmanager
def hosts_line(machine: Machine, name: str, address: str, *, beside: bool = False) -> Iterator[None]:
    """Add an /etc/hosts line for this name. beside: keep existing entries for the name."""
    before = machine.inside("cat", "/etc/hosts").stdout
    gone = "" if beside else name
    others = "".join(
        " ".join(word for word in line.split() if word != gone) + "\n" for line in before.splitlines() if line.strip()
    )
    write(machine, "/etc/hosts", f"{address} {name}\n{others}")
    try:
        shown = machine.inside("getent", "ahostsv4", name).stdout.splitlines()
        found = {line.split()[0] for line in shown}
        assert address in found
        assert len(found) == (2 if beside else 1)
        yield
    finally:
        write(machine, "/etc/hosts", before)


@contextmanager
def dead_name_server(machine: Machine, silent: str) -> Iterator[None]:
    """Replace the name servers of the machine with a local address that drops all queries."""
    before = machine.inside("cat", "/etc/resolv.conf").stdout
    machine.inside("ip", "address", "add", f"{silent}/32", "dev", "lo")
    with rules(machine, f"ip daddr {silent} udp dport 53 counter drop"):
        write(machine, "/etc/resolv.conf", f"nameserver {silent}\n")
        try:
            began = time.monotonic()
            machine.inside("getent", "hosts", "203.0.113.9", check=False)
            assert time.monotonic() - began > 3, "the resolver did not wait for the name server"
            yield
        finally:
            write(machine, "/etc/resolv.conf", before)
            machine.inside("ip", "address", "delete", f"{silent}/32", "dev", "lo")


@contextmanager
def absent_name_server(machine: Machine, absent: str) -> Iterator[None]:
    """Replace the name servers of the machine with an address of its network that no machine has."""
    before = machine.inside("cat", "/etc/resolv.conf").stdout
    write(machine, "/etc/resolv.conf", f"nameserver {absent}\n")
    try:
        began = time.monotonic()
        machine.inside("getent", "hosts", "203.0.113.9", check=False)
        assert time.monotonic() - began > 2, "the resolver did not wait for the name server"
        yield
    finally:
        write(machine, "/etc/resolv.conf", before)


@contextmanager
def route_over_lo(machine: Machine, peer: Machine) -> Iterator[None]:
    """Route packets for the peer to the loopback interface."""
    machine.inside("ip", "route", "add", f"{peer.address}/32", "dev", "lo")
    try:
        assert " dev lo " in machine.inside("ip", "route", "get", peer.address).stdout
        assert not echoes(machine, peer, 100)
        yield
    finally:
        machine.inside("ip", "route", "delete", f"{peer.address}/32", "dev", "lo")
        assert echoes(machine, peer, 100)


@contextmanager
def wrong_neighbour(machine: Machine, peer: Machine) -> Iterator[None]:
    """Send packets for the peer to a hardware address that no machine has."""
    entry = ["neighbour", "replace", peer.address, "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0"]
    machine.inside("ip", *entry)
    try:
        assert not echoes(machine, peer, 100)
        yield
    finally:
        machine.inside("ip", "neighbour", "delete", peer.address, "dev", "eth0")
        assert echoes(machine, peer, 100)


@contextmanager
def wrong_route(machine: Machine, peer: Machine) -> Iterator[None]:
    """Route packets for the peer to an interface that does not reach the peer."""
    machine.inside("ip", "link", "add", "astray0", "type", "veth", "peer", "name", "astray1")
    try:
        for name in ("astray0", "astray1"):
            machine.inside("ip", "link", "set", name, "up")
        machine.inside("ip", "route", "add", f"{peer.address}/32", "dev", "astray0")
        assert " dev astray0 " in machine.inside("ip", "route", "get", peer.address).stdout
        assert not echoes(machine, peer, 100)
        yield
    finally:
        machine.inside("ip", "link", "delete", "astray0")


@contextmanager
def held_answers(machines: list[Machine]) -> Iterator[str]:
    """Yield the path of a Python wrapper that probes all peers, but returns the answer only after GATE is removed."""
    try:
        for machine in machines:
            write(machine, HELD_PYTHON, HELD_ANSWER)
            machine.inside("sh", "-c", f"chmod 755 {HELD_PYTHON}; touch {GATE}; chmod 666 {GATE}")
        yield HELD_PYTHON
    finally:
        for machine in machines:
            machine.inside("rm", "--force", HELD_PYTHON, GATE)


def has_called(machine: Machine) -> bool:
    """Return whether the wrapper of held_answers has probed all peers."""
    return machine.inside("cat", GATE).stdout == "called\n"


def write(machine: Machine, path: str, text: str) -> None:
    machine.inside(
        "python3", "-c", "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])", path, text
    )


@contextmanager
def addresses(owners: dict[str, list[Machine]]) -> Iterator[None]:
    """Add addresses to the machines' interfaces. Several machines may get the same address."""
    given = [(address, machine) for address, machines in owners.items() for machine in machines]
    try:
        for address, machine in given:
            machine.inside("ip", "address", "add", f"{address}/24", "dev", "eth0")
        for address, machine in given:
            assert address in machine.inside("ip", "-brief", "address", "show", "dev", "eth0").stdout
        yield
    finally:
        for address, machine in given:
            machine.inside("ip", "address", "delete", f"{address}/24", "dev", "eth0", check=False)


@contextmanager
def wrong_clock(machine: Machine, seconds: float) -> Iterator[str]:
    """Yield the path of a Python wrapper whose clock is ahead by this number of seconds."""
    write(machine, CLOCK, WRONG_CLOCK.format(seconds=seconds))
    try:
        machine.inside("chmod", "755", CLOCK)
        clock = [CLOCK, "-I", "-S", "-c", "import time; print(time.time())"]
        right = float(machine.inside("python3", "-c", "import time; print(time.time())").stdout)
        assert abs(float(machine.inside(*clock).stdout) - right - seconds) < 1.0
        yield CLOCK
    finally:
        machine.inside("rm", CLOCK)


def nothing_left(machines: list[Machine]) -> None:
    """Check that no probe process is left and that the master port is free."""

    def gone() -> bool:
        return not any(
            machine.inside("sh", "-c", "grep -l -s -x muster-probe /proc/[0-9]*/comm", check=False).stdout
            or machine.inside("ss", "-Hltn", f"sport = :{PORT}").stdout
            for machine in machines
        )

    until(gone, 9, "the probe has ended on every node")
