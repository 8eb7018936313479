"""Nodes that check themselves, their metrics, and alerts: installed by one run, seen from outside, and removed."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from machines import NODES, find_machine
from paths import ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine, Play

ON = {"watch_mode": "manage", "monitoring_mode": "manage", "monitoring_server": "node1"}
OFF = {**ON, "watch_mode": "absent", "monitoring_mode": "absent"}
TEXTFILES = "/var/lib/prometheus/node-exporter"
LAUNCHES = "/var/lib/muster/launches"
OWN = ("/usr/local/sbin/muster-node-check", "/etc/muster/node-check.json", "/etc/muster/prometheus")
RULES = ROOT / "roles/monitoring/files/rules.yml"
PAYLOADS = ROOT / "tests/integration/payloads"


def watch(play: Play, variables: dict[str, Any], *, check: bool = False) -> Any:
    result = play("playbooks/watch.yml", extravars=variables, check=check)
    assert result.rc == 0, result.stdout
    return result


@pytest.fixture(scope="module")
def nodes(networked: list[Machine], play: Play) -> Iterator[dict[str, Machine]]:
    """Provide three watched nodes. Remove everything afterwards, and prove that nothing is left."""
    machines = {machine.name: machine for machine in networked}
    before = {name: listening(machine) for name, machine in machines.items()}
    assert watch(play, ON, check=True).changed
    watch(play, ON)
    yield machines
    watch(play, OFF)
    for name, machine in machines.items():
        assert listening(machine) == before[name]
        left = machine.inside(
            "sh", "-c", f"ls -d {' '.join(OWN)} /etc/systemd/system/*muster-node* 2>/dev/null", check=False
        )
        assert left.stdout == ""
    assert not watch(play, OFF).changed


def listening(machine: Machine) -> set[str]:
    """Return the addresses and ports that listen for TCP."""
    return {line.split()[3] for line in machine.inside("ss", "-Hltn").stdout.splitlines()}


def checked(machine: Machine) -> dict[str, Any]:
    """Let the node check itself as the timer does, and return the answer."""
    machine.inside("systemctl", "start", "muster-node-check.service")
    answer: dict[str, Any] = json.loads(machine.inside("cat", "/var/lib/muster/node-check/last.json").stdout)
    return answer


def ask(server: Machine, query: str) -> list[dict[str, Any]]:
    """Return the result of a Prometheus query."""
    url = f"http://127.0.0.1:9090/api/v1/query?query={quote(query)}"
    program = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
    done = json.loads(server.inside("python3", "-c", program, url).stdout)
    assert done["status"] == "success"
    found: list[dict[str, Any]] = done["data"]["result"]
    return found


def firing(server: Machine, alert: str, instance: str) -> bool:
    return bool(ask(server, f'ALERTS{{alertstate="firing",alertname="{alert}",instance="{instance}"}}'))


def test_second_run_changes_nothing_and_check_mode_agrees(nodes: dict[str, Machine], play: Play) -> None:
    assert nodes
    assert not watch(play, ON).changed
    assert not watch(play, ON, check=True).changed


def test_every_node_checks_itself_without_the_controller(nodes: dict[str, Machine]) -> None:
    for machine in nodes.values():
        answer = checked(machine)
        assert (answer["status"], answer["reason"]) == ("ok", ""), answer
        assert answer["ran"] > 10
        shown = machine.inside("systemctl", "list-timers", "--all", "muster-node-check.timer").stdout
        assert "muster-node-check.service" in shown
        used = machine.inside(
            "systemctl", "show", "--property=ExecMainStatus,Result", "muster-node-check.service"
        ).stdout
        assert "Result=success" in used


def test_a_fault_is_named_with_its_owner_and_ends_with_the_fault(nodes: dict[str, Machine], play: Play) -> None:
    """The disk for launch logs is read-only on node2."""
    machine = nodes["node2"]
    machine.inside("sh", "-ec", f"mkdir -p {LAUNCHES}; mount -t tmpfs -o ro,size=1m tmpfs {LAUNCHES}")
    try:
        done = machine.inside("muster-node-check", check=False)
        assert done.returncode == 1
        assert done.stdout.startswith("node: ")
        answer = checked(machine)
        assert (answer["owner"], answer["faults"]) == ("node", ["node.disk.small"])
        status = play("playbooks/status.yml").stdout
        assert answer["reason"][:60] in " ".join(status.split())
        until(lambda: firing(nodes["node1"], "MusterNodeFault", "node2"), PATIENCE, "the alert fires")
        assert not firing(nodes["node1"], "MusterNodeFault", "node3")
    finally:
        machine.inside("umount", LAUNCHES)
    assert checked(machine)["status"] == "ok"
    until(lambda: not firing(nodes["node1"], "MusterNodeFault", "node2"), PATIENCE, "the alert clears")


def test_a_node_that_does_not_respond_is_reported(nodes: dict[str, Machine]) -> None:
    machine = nodes["node3"]
    machine.inside("systemctl", "stop", "prometheus-node-exporter")
    try:
        until(lambda: firing(nodes["node1"], "MusterNodeDown", "node3"), 2 * PATIENCE, "the alert fires")
    finally:
        machine.inside("systemctl", "start", "prometheus-node-exporter")
    until(lambda: not firing(nodes["node1"], "MusterNodeDown", "node3"), PATIENCE, "the alert clears")


def test_metrics_are_for_peers_and_prometheus_for_its_own_node_only(nodes: dict[str, Machine]) -> None:
    outsider = find_machine("outsider")
    connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    for machine in nodes.values():
        exporters = {one for one in listening(machine) if one.endswith(":9100")}
        assert exporters == {f"{machine.address}:9100"}
        assert outsider.inside("python3", "-c", connect, machine.address, "9100", check=False).returncode
    assert {one for one in listening(nodes["node1"]) if one.endswith(":9090")} == {"127.0.0.1:9090"}
    assert nodes["node1"].inside("python3", "-c", connect, nodes["node2"].address, "9100").returncode == 0


def test_every_rule_fires_for_its_fault_only(nodes: dict[str, Machine]) -> None:
    server = nodes["node1"]
    server.inside("mkdir", "-p", "/tmp/rules")
    server.podman_copy(RULES, "/tmp/rules/rules.yml")
    server.podman_copy(PAYLOADS / "rules_test.yml", "/tmp/rules/rules_test.yml")
    tested = server.inside("promtool", "test", "rules", "/tmp/rules/rules_test.yml", check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    names = [line.split()[-1] for line in RULES.read_text().splitlines() if "- alert:" in line]
    cases = (PAYLOADS / "rules_test.yml").read_text()
    assert all(f'alertname="{name}"' in cases for name in names)
    server.inside("rm", "-r", "/tmp/rules")


def test_every_panel_of_the_dashboard_has_data(nodes: dict[str, Machine]) -> None:
    """With a stub of a GPU's metrics on node2."""
    dashboard = json.loads((ROOT / "roles/monitoring/files/dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > 8
    stub = f"{TEXTFILES}/gpu_stub.prom"
    nodes["node2"].podman_copy(PAYLOADS / "gpu_metrics.prom", stub)
    try:
        for query in queries:
            until(partial(ask, nodes["node1"], query), PATIENCE, f"data for {query}")
    finally:
        nodes["node2"].inside("rm", stub)


def test_a_foreign_exporter_is_rejected_and_stays(nodes: dict[str, Machine], play: Play) -> None:
    """The site's own node_exporter on node3 is not reconfigured."""
    machine = nodes["node3"]
    drop_in = "/etc/systemd/system/prometheus-node-exporter.service.d"
    machine.inside(
        "sh", "-ec", f"mv {drop_in} /tmp/kept; systemctl daemon-reload; systemctl restart prometheus-node-exporter"
    )
    try:
        result = play("playbooks/watch.yml", extravars=ON)
        assert result.rc != 0
        assert "node3: prometheus-node-exporter is already running and not configured by Muster" in result.stdout
        assert machine.inside("ls", drop_in, check=False).returncode
    finally:
        machine.inside(
            "sh", "-ec", f"mv /tmp/kept {drop_in}; systemctl daemon-reload; systemctl restart prometheus-node-exporter"
        )
    assert set(NODES) == set(nodes)
    assert not watch(play, ON).changed


def test_a_prometheus_with_drop_ins_of_the_site_is_rejected_and_stays(nodes: dict[str, Machine], play: Play) -> None:
    """The folder of the drop-ins exists on node2, and the service runs without Muster's drop-in."""
    machine = nodes["node2"]
    folder = "/etc/systemd/system/prometheus-node-exporter.service.d"
    restart = "systemctl daemon-reload; systemctl restart prometheus-node-exporter"
    own = f"mv {folder}/90-muster.conf /tmp/kept; printf '[Service]\\nNice=5\\n' > {folder}/site.conf; {restart}"
    machine.inside("sh", "-ec", own)
    try:
        for check in (True, False):
            result = play("playbooks/watch.yml", extravars=ON, check=check)
            assert result.rc != 0
            assert "node2: prometheus-node-exporter is already running and not configured by Muster" in result.stdout
        assert machine.inside("ls", folder).stdout == "site.conf\n"
    finally:
        machine.inside("sh", "-ec", f"rm {folder}/site.conf; mv /tmp/kept {folder}/90-muster.conf; {restart}")
    assert not watch(play, ON).changed


def test_an_interrupted_removal_is_completed_and_leaves_nothing_open(nodes: dict[str, Machine], play: Play) -> None:
    """On node3, the first removal stopped the service, and was interrupted before it removed the configuration."""
    nodes["node3"].inside("systemctl", "disable", "--now", "prometheus-node-exporter")
    watch(play, OFF)
    for machine in nodes.values():
        assert not any(one.endswith((":9100", ":9090")) for one in listening(machine))
        drop_ins = machine.inside(
            "sh", "-c", "ls /etc/systemd/system/prometheus*/90-muster.conf 2>/dev/null", check=False
        )
        assert drop_ins.stdout == ""
    watch(play, ON)
