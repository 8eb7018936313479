"""playbooks/health.yml on a healthy cluster, on a faulty cluster, and with nodes that cannot be fully checked.

PyTorch is a stub (standin_wheels.py). test_net_faults.py covers network faults, test_gpu_health.py covers GPUs.
"""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from machines import NODES
from outside import PAYLOADS, listeners
from paths import ARTIFACTS
from snapshot import differences, take
from standin_wheels import make_wheels
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

ROOT = "/opt/muster-test-health"
WHEELS = "/srv/muster-test-health-wheels"
USUAL, OTHER = "2.0.0", "2.1.0"
PORT = 29500
CODE = "/srv/muster-test-code"
METRICS = "/var/lib/muster-test-metrics"
# The result of the step pytorch with the stub wheels, which contain no programs.
ENVIRONMENTS = f"""
umask 022
for version in {OTHER} {USUAL}; do
    env={ROOT}/envs/$version
    python3 -m venv --without-pip $env
    for wheel in {WHEELS}/torch-$version+cpu-*.whl {WHEELS}/tiny-*.whl; do
        python3 -m zipfile --extract $wheel $env/lib/python3*/site-packages
    done
    printf '#!/bin/sh\\nexit 1\\n' >$env/bin/torchrun
    chmod 755 $env/bin/torchrun
    ln -sfn $env {ROOT}/current
done
mkdir -p {METRICS} {CODE}
echo 'print("step")' >{CODE}/train.py
"""
LATE = "/usr/local/bin/late-python"
LAUNCHES = "/var/lib/muster/launches"
RANK = "muster-test-rank"
LOGIND = "/etc/systemd/logind.conf.d/90-muster.conf"
REMOVES = "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager RemoveIPC"


@dataclass(frozen=True)
class Fault:
    """does, undo: inject and revert the fault on this node. proof: succeeds only while the fault is active."""

    node: str
    does: str
    proof: str
    undo: str


def switch(version: str) -> str:
    """Return the command that makes the environment with this torch version the default of a node."""
    same = f'grep -q "{version}+cpu" $env/lib/python3*/site-packages/torch/version.py'
    return f"for env in {ROOT}/envs/*; do if {same}; then ln -sfn $env {ROOT}/current; fi; done"


# By finding id.
FAULTS = {
    "node.disk.small": Fault(
        "node1",
        f"mkdir -p {LAUNCHES}; mount -t tmpfs -o size=64k tmpfs {LAUNCHES}; yes >{LAUNCHES}/log || true",
        f"mountpoint -q {LAUNCHES} && ! echo one line more >{LAUNCHES}/more",
        f"umount {LAUNCHES}",
    ),
    "os.shm.small": Fault(
        "node3",
        "fallocate -l $(($(df --output=avail -B1 /dev/shm | tail -1) - 8000000)) /dev/shm/muster-test-full",
        "head -c 40000000 /dev/zero >/dev/shm/muster-test-more; full=$?; rm /dev/shm/muster-test-more; [ $full != 0 ]",
        "rm /dev/shm/muster-test-full",
    ),
    "os.remove_ipc": Fault(
        "node2",
        f"mv {LOGIND} /run/muster-test-logind; systemctl restart systemd-logind",
        f"{REMOVES} | grep -qx 'b true'",
        f"mv /run/muster-test-logind {LOGIND}; systemctl restart systemd-logind",
    ),
    "job.stale": Fault(
        "node3",
        f"systemd-run --quiet --collect --unit={RANK} --uid=muster"
        f" --setenv=RANK=2 --setenv=MASTER_PORT={PORT} --setenv=TORCHELASTIC_RUN_ID=forgotten sleep infinity",
        f"tr '\\0' '\\n' </proc/$(systemctl show --value -p MainPID {RANK})/environ | grep -qx RANK=2",
        f"systemctl stop {RANK}",
    ),
    "env.launcher": Fault(
        "node2",
        "echo PET_NNODES=4 >>/etc/environment",
        "grep -qx PET_NNODES=4 /etc/environment",
        "sed -i /PET_NNODES/d /etc/environment",
    ),
    "env.interface": Fault(
        "node1",
        "echo NCCL_SOCKET_IFNAME=eno7np0 >>/etc/environment",
        "grep -qx NCCL_SOCKET_IFNAME=eno7np0 /etc/environment && ! test -e /sys/class/net/eno7np0",
        "sed -i /NCCL_SOCKET_IFNAME/d /etc/environment",
    ),
    "firewall.published": Fault(
        "node1",
        "iptables -t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80",
        "iptables -t nat -S PREROUTING | grep -q 'dport 8080 -j DNAT'",
        "iptables -t nat -D PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80",
    ),
    "sw.torchrun.missing": Fault(
        "node3",
        f"mv {ROOT}/current/bin/torchrun {ROOT}/torchrun",
        f"! test -e {ROOT}/current/bin/torchrun",
        f"mv {ROOT}/torchrun {ROOT}/current/bin/torchrun",
    ),
    "versions.torch.differ": Fault(
        "node2",
        switch(OTHER),
        f"{ROOT}/current/bin/python -c 'import torch; assert torch.__version__ == \"{OTHER}+cpu\"'",
        switch(USUAL),
    ),
    "versions.code.differ": Fault(
        "node1",
        f"echo 'print(\"done\")' >>{CODE}/train.py",
        f"grep -q done {CODE}/train.py",
        f"sed -i /done/d {CODE}/train.py",
    ),
    "net.clock.offset": Fault(
        "node3",
        "true",
        f"test $(($({LATE} -I -S -c 'import time; print(int(time.time()))') - $(date +%s))) -gt 60",
        "true",
    ),
}


# Additional findings caused by these faults.
NAMED = {**{name: fault.node for name, fault in FAULTS.items()}, "env.variables.differ": "node2"}


@dataclass(frozen=True)
class Visit:
    """The result of a health check, and its artifacts."""

    result: Result
    run: Path

    @property
    def verdict(self) -> dict[str, Any]:
        kept: dict[str, Any] = json.loads((self.run / "verdict.json").read_text())
        return kept

    @property
    def not_passed(self) -> dict[str, set[str]]:
        """Return the nodes of each finding that did not pass."""
        found: dict[str, set[str]] = {}
        for finding in self.verdict["findings"]:
            if finding["status"] != "pass":
                found.setdefault(finding["id"], set()).add(finding["node"])
        return found

    @property
    def refusal(self) -> str:
        [refused] = self.result.results("Stop if a check blocks launches").values()
        return str(refused["msg"])


class Clinic:
    """Nodes after the steps up to network with a PyTorch stub, and the folder of their artifacts."""

    def __init__(self, play: Play, folder: Path) -> None:
        self.play = play
        self.folder = folder
        self.variables = {
            "pytorch_root": ROOT,
            "cluster_artifacts_dir": str(folder),
            "health_throughput": False,
            "health_code": [CODE],
        }

    def look(self, *, check: bool = False, limit: str | None = None, **variables: Any) -> Visit:
        return self.take("playbooks/health.yml", variables, check=check, limit=limit)

    def take(self, playbook: str, variables: dict[str, Any], **requested: Any) -> Visit:
        extravars = {**self.variables, **variables}
        result = self.play(playbook, extravars=extravars, **requested)
        return Visit(result, (self.folder / ARTIFACTS.name / "latest").resolve())


@pytest.fixture(scope="module")
def nodes(networked: list[Machine]) -> dict[str, Machine]:
    return dict(zip(NODES, networked, strict=True))


@pytest.fixture(scope="module")
def clinic(nodes: dict[str, Machine], play: Play, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    folder = tmp_path_factory.mktemp("health")
    wheels = folder / "wheels"
    wheels.mkdir()
    make_wheels(wheels)
    for machine in nodes.values():
        machine.inside("rm", "-rf", ROOT, WHEELS)
        subprocess.run(["podman", "cp", str(wheels), f"{machine.container}:{WHEELS}"], check=True, capture_output=True)
        machine.inside("sh", "-ec", ENVIRONMENTS)
    late = (PAYLOADS / "late_python.sh").read_text()
    install = ["podman", "exec", "--interactive", nodes["node3"].container]
    subprocess.run([*install, "install", "-m", "755", "/dev/stdin", LATE], input=late.encode(), check=True)
    yield Clinic(play, folder / "artifacts")
    for machine in nodes.values():
        machine.inside("rm", "-rf", ROOT, WHEELS, METRICS, CODE, LATE)


@pytest.fixture(scope="module")
def healthy(clinic: Clinic) -> Visit:
    """Check a healthy cluster, and write metrics."""
    return clinic.look(health_prometheus_dir=METRICS)


@pytest.fixture(scope="module")
def faulty(clinic: Clinic, healthy: Visit, nodes: dict[str, Machine], turn: int) -> Visit:
    """Check the cluster with all faults at the same time."""
    late = f"{{{{ '{LATE}' if inventory_hostname == 'node3' else '/usr/bin/python3' }}}}"
    with ExitStack() as on:
        for fault in FAULTS.values():
            on.enter_context(injected(nodes[fault.node], fault))
        return clinic.look(health_gate="warn", health_prometheus_dir=METRICS, ansible_python_interpreter=late)


@contextmanager
def injected(machine: Machine, fault: Fault) -> Iterator[None]:
    if fault.does != "true":
        assert machine.inside("sh", "-c", fault.proof, check=False).returncode != 0, "the fault is already on"
    machine.inside("sh", "-ec", fault.does)
    try:
        assert machine.inside("sh", "-c", fault.proof, check=False).returncode == 0, "the fault is not on"
        yield
    finally:
        machine.inside("sh", "-ec", fault.undo)


def metrics(machine: Machine) -> str:
    return machine.inside("cat", f"{METRICS}/muster_health.prom").stdout


def test_healthy_cluster_has_no_findings(healthy: Visit) -> None:
    assert healthy.result.rc == 0, healthy.result.stdout
    assert healthy.not_passed == {}
    assert healthy.verdict["status"] == "healthy"


def test_health_check_changes_nothing(healthy: Visit, faulty: Visit) -> None:
    assert healthy.result.changed == []
    assert faulty.result.changed == []


@pytest.mark.moment
@pytest.mark.parametrize("name", NAMED)
def test_fault_is_reported_on_its_node(name: str, faulty: Visit) -> None:
    assert faulty.not_passed[name] == {NAMED[name]}


@pytest.mark.moment
def test_nothing_else_is_reported(faulty: Visit) -> None:
    assert faulty.not_passed.keys() == NAMED.keys()


def test_failures_are_only_reported_if_the_gate_warns(faulty: Visit) -> None:
    assert faulty.result.rc == 0, faulty.result.stdout
    assert faulty.verdict["status"] == "degraded"


def test_metrics_match_the_findings(faulty: Visit, nodes: dict[str, Machine]) -> None:
    text = metrics(nodes["node1"])
    assert re.search(r'^muster_check_status\{check="node\.disk\.small",peer=""\} [12]$', text, re.MULTILINE), text
    assert "job.stale" not in text


def test_repaired_cluster_has_no_findings(faulty: Visit, clinic: Clinic, nodes: dict[str, Machine]) -> None:
    again = clinic.look(health_prometheus_dir=METRICS)
    assert again.result.rc == 0, again.result.stdout
    assert again.not_passed == {}
    assert "node.disk.small" not in metrics(nodes["node1"])


@pytest.mark.moment
def test_setting_lost_at_the_next_restart_is_reported(clinic: Clinic, nodes: dict[str, Machine]) -> None:
    """The settings file is deleted, while systemd-logind still uses its content."""
    does, undo = f"mv {LOGIND} /run/muster-test-logind", f"mv /run/muster-test-logind {LOGIND}"
    proof = f"! test -e {LOGIND} && {REMOVES} | grep -qx 'b false'"
    with injected(nodes["node1"], Fault("node1", does, proof, undo)):
        visit = clinic.look(health_gate="warn")
    assert visit.not_passed["os.remove_ipc"] == {"node1"}
    [said] = [one["summary"] for one in visit.verdict["findings"] if one["id"] == "os.remove_ipc"]
    assert "after the next restart of systemd-logind" in said


def test_launch_is_refused_while_its_port_is_taken(clinic: Clinic, nodes: dict[str, Machine]) -> None:
    head = nodes["node1"]
    before = take(head)
    with listeners(head, [PORT]):
        checked = clinic.look(check=True)
        refused = clinic.look()
        warned = clinic.look(health_gate="warn")
        pipeline = clinic.take("site.yml", {}, tags="health,ddp_smoke")
    assert differences(before, take(head)) == []
    visits = (checked, refused, warned, pipeline)
    assert [visit.result.rc == 0 for visit in visits] == [True, False, True, False], warned.result.stdout
    for visit in visits:
        assert (
            visit.not_passed.keys() & {"job.port.held", "net.master_port.foreign"} == visit.not_passed.keys() != set()
        )
        assert set.union(*visit.not_passed.values()) == {"node1"}, visit.not_passed
        assert (visit.run / "report.html").stat().st_size
    assert refused.verdict["status"] == "failed"
    assert f"{PORT}" in refused.refusal
    assert refused.refusal.startswith("node1")
    assert warned.verdict["status"] == "degraded"
    assert pipeline.refusal == refused.refusal
    assert not (pipeline.run / "plan.json").exists(), "the refused launch has a plan"


@pytest.mark.moment
def test_unreachable_node_is_reported(clinic: Clinic, nodes: dict[str, Machine]) -> None:
    dead = nodes["node3"]
    dead.podman("stop", "--time=0")
    try:
        visit = clinic.look()
    finally:
        dead.podman("start")
        until(dead.ssh_answers, PATIENCE, f"{dead.name} is back")
    assert visit.result.rc != 0
    assert visit.not_passed["node.unreachable"] == {"node3"}
    assert set.union(*visit.not_passed.values()) == {"node3"}, visit.not_passed
    assert "node3" in visit.refusal
    # The other nodes were checked.
    assert sorted(path.stem for path in (visit.run / "health").iterdir()) == ["node1", "node2"]


def test_checks_that_need_root_are_skipped_without_root(clinic: Clinic, healthy: Visit) -> None:
    visit = clinic.look(ansible_become=False)
    assert visit.result.rc == 0, visit.result.stdout
    assert visit.not_passed == {}
    skipped = {entry["id"]: entry["why"] for entry in visit.verdict["coverage"]["skipped"]}
    as_root = {entry["id"] for entry in healthy.verdict["coverage"]["skipped"]}
    assert skipped.keys() > as_root
    assert all("root" in why for name, why in skipped.items() if name not in as_root), skipped


def test_node_excluded_by_limit_is_skipped_with_the_reason(clinic: Clinic) -> None:
    visit = clinic.look(limit="node1,node2")
    assert visit.result.rc == 0, visit.result.stdout
    assert visit.not_passed == {}
    left_out = {"id": "node", "node": "node3", "why": "excluded by --limit"}
    assert left_out in visit.verdict["coverage"]["skipped"]
