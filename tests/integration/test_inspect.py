"""An inspection changes nothing, reports the problems of each node, and stops only those nodes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from paths import ARTIFACTS
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play, Result

LOOK = "Inspect all nodes at once"
REFUSE = "Reject an unsuitable node"
# Persistent files, except those that the login itself writes.
FILES = "find /etc /home /opt /root /srv /usr /var -xdev -not -path '/var/log/*' -printf '%p %m %u %s %T@\n' | sort"
PROCESSES = "ps -eo comm="
PACKAGES = "dpkg-query -W"
# Processes of this probe and of the login. Filtered in Python, because a pipeline would list its own processes.
OF_THE_LOOK = ("ps", "sh", "bash", "dash", "sshd", "sudo", "systemd-logind")


def state_of(machine: Machine) -> list[list[str]]:
    files, processes, packages = (
        machine.inside("sh", "-c", command).stdout.splitlines() for command in (FILES, PROCESSES, PACKAGES)
    )
    return [files, [name for name in processes if not name.startswith(OF_THE_LOOK)], packages]


@contextmanager
def without_timers(machine: Machine) -> Iterator[None]:
    """Stop all timers, so that only the inspection can change the machine."""
    shown = machine.inside("systemctl", "list-units", "--type=timer", "--plain", "--no-legend").stdout
    timers = [line.split()[0] for line in shown.splitlines()]
    machine.inside("systemctl", "stop", *timers)
    try:
        begun = ["systemctl", "list-units", "--state=activating", "--plain", "--no-legend"]
        until(lambda: not machine.inside(*begun).stdout, PATIENCE, "jobs of timers have ended")
        yield
    finally:
        machine.inside("systemctl", "start", *timers)


def only_for(node: str, value: str, otherwise: str = "") -> str:
    """Return a template that has this value on one node only."""
    return f"{{{{ '{value}' if inventory_hostname == '{node}' else '{otherwise}' }}}}"


def report_of(result: Result) -> str:
    return str(next(iter(result.results("Evaluate the inspection").values()))["msg"])


def facts_on_disk() -> dict[str, Any]:
    path = ARTIFACTS / "inspect.json"
    assert path.stat().st_mode & 0o077 == 0
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.mark.moment
@pytest.mark.parametrize(
    "requested",
    [{}, {"extravars": {"ansible_become": False}}, {"check": True}],
    ids=["as root", "as an ordinary user", "check mode"],
)
def test_inspection_changes_nothing(play: Play, node: Callable[[str], Machine], requested: dict[str, Any]) -> None:
    node1 = node("node1")
    with without_timers(node1):
        before = state_of(node1)
        result = play("playbooks/inspect.yml", **requested)
        after = state_of(node1)
    assert result.rc == 0, result.stdout
    for now, then in zip(after, before, strict=True):
        assert set(now) ^ set(then) == set()
    assert not result.changed
    assert not result.results(REFUSE)
    (look,) = result.results(LOOK).values()
    assert all(entry["facts"]["system"]["container"] for entry in look["nodes"].values())
    root = "extravars" not in requested
    facts = facts_on_disk()["nodes"]["node1"]
    assert facts["looked_as"] == {"user": "root" if root else "admin", "root": root}
    sshd = next(listener for listener in facts["listeners"] if listener["port"] == 22)
    assert sshd["process"] == ("sshd" if root else "")
    assert ("listeners.owners" in facts["skipped"]) is not root
    assert facts["network"]["ways"][node("node2").address]["interface"] == "eth0"
    for line in report_of(result).splitlines()[:4]:
        assert len(line) <= 120


def test_inspection_contacts_each_node_once(play: Play) -> None:
    result = play("playbooks/inspect.yml")
    executed = [
        event["event_data"]["task"]
        for event in result.events
        if event["event"] == "runner_on_ok" and event["event_data"]["host"] == "node1"
    ]
    assert executed == []
    (look,) = result.results(LOOK).values()
    assert "node1" in look["nodes"]


def test_missing_interface_stops_only_the_affected_node(play: Play) -> None:
    requested = {"cluster_interface": only_for("node2", "ib7")}
    result = play("playbooks/inspect.yml", extravars=requested)
    refused = result.results(REFUSE)
    assert list(refused) == ["node2"]
    assert "node2: no interface ib7 (cluster_interface); present: eth0" in refused["node2"]["msg"]
    assert result.stats["failures"] == {"node2": 1}
    assert facts_on_disk()["nodes"]["node1"]


def test_address_missing_on_the_node_is_reported(play: Play, node: Callable[[str], Machine]) -> None:
    address = node("node1").address
    elsewhere = f"{address.rpartition('.')[0]}.77"
    requested = {
        "cluster_address": only_for("node1", elsewhere, "{{ ansible_host }}").replace(
            "'{{ ansible_host }}'", "ansible_host"
        )
    }
    result = play("playbooks/inspect.yml", extravars=requested)
    refused = result.results(REFUSE)
    assert list(refused) == ["node1"]
    assert f"no interface has the address {elsewhere}" in refused["node1"]["msg"]
    assert f"eth0 has {address}" in refused["node1"]["msg"]


def test_machine_with_two_inventory_names_is_refused(play: Play, node: Callable[[str], Machine]) -> None:
    node1, node2 = node("node1"), node("node2")
    second = f"{node1.address.rpartition('.')[0]}.78"
    node1.inside("ip", "addr", "add", f"{second}/24", "dev", "eth0")
    try:
        addresses = {name: node(name).address for name in ("node1", "node2", "node3")} | {"node2": second}
        result = play(
            "playbooks/inspect.yml",
            extravars={
                "ansible_ssh_extra_args": only_for("node2", f"-o HostKeyAlias={node1.address}"),
                "ansible_host": "{{ our_addresses[inventory_hostname] | default('localhost') }}",
                "our_addresses": addresses,
            },
        )
    finally:
        node1.inside("ip", "addr", "del", f"{second}/24", "dev", "eth0")
    refused = result.results(REFUSE)
    assert sorted(refused) == ["node1", "node2"], result.stdout
    assert "node1 and node2 are the same machine" in refused["node1"]["msg"]
    assert node2.ssh_answers()


@contextmanager
def identity(machine: Machine, text: str) -> Iterator[None]:
    machine.inside("sh", "-c", f"mv /etc/os-release /etc/os-release.kept && printf '{text}' > /etc/os-release")
    try:
        yield
    finally:
        machine.inside("mv", "-f", "/etc/os-release.kept", "/etc/os-release")


def test_unsupported_system_is_refused(play: Play, node: Callable[[str], Machine]) -> None:
    with identity(node("node2"), 'ID=fedora\\nVERSION_ID=40\\nPRETTY_NAME="Fedora Linux 40"\\n'):
        result = play("site.yml", tags="inspect")
    refused = result.results(REFUSE)
    assert list(refused) == ["node2"]
    assert "Muster does not support Fedora Linux 40" in refused["node2"]["msg"]


@pytest.mark.moment
def test_unreachable_node_is_reported_and_does_not_stop_other_nodes(play: Play, node: Callable[[str], Machine]) -> None:
    node3 = node("node3")
    node3.podman("pause")
    try:
        result = play("playbooks/inspect.yml", cmdline="--timeout 5")
    finally:
        node3.podman("unpause")
    lines = report_of(result).splitlines()
    assert any(line.startswith("node3  not reached") for line in lines)
    assert any(line.startswith("????  node3: the node was not inspected") for line in lines)
    assert facts_on_disk()["nodes"]["node1"]
    assert facts_on_disk()["nodes"]["node3"] is None


@pytest.mark.moment
def test_hanging_and_noisy_tools_are_tolerated(play: Play, node: Callable[[str], Machine]) -> None:
    node1 = node("node1")
    # This folder comes first in the PATH of the inspection.
    hang = "printf '#!/bin/sh\\nexec sleep 60\\n' > /usr/local/bin/ss"
    shout = "printf '#!/bin/sh\\necho Welcome!; echo {\\n' > /usr/local/bin/dpkg-query"
    node1.inside("sh", "-c", f"{hang}; {shout}; chmod +x /usr/local/bin/ss /usr/local/bin/dpkg-query")
    try:
        result = play("playbooks/inspect.yml", limit="node1")
    finally:
        node1.inside("rm", "/usr/local/bin/ss", "/usr/local/bin/dpkg-query")
    assert result.rc == 0, result.stdout
    skipped = facts_on_disk()["nodes"]["node1"]["skipped"]
    assert skipped["listeners"] == "ss did not answer within 6 s"
