"""A PyTorch upgrade of nodes in use: one node first, then the others, and the rollback.

The wheels contain the nodes' real PyTorch with other version numbers. One version computes wrong products on node3. The
tests depend on their order.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from acceptance_runs import SITE_PACKAGES_OF_TORCH
from killable import Run, moments
from lab import SANDBOX_KNOWS, at, make_lab
from machines import NODES, run_playbook
from package_index import PackageIndex
from standin_wheels import relabelled_torch
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Result

pytestmark = pytest.mark.slow
ROOT = "/opt/muster-test-upgrade"
BOOK = "playbooks/upgrade.yml"
PLAN, END = "Plan the order of the upgrade", "Write the new version to the inventory"
BEFORE, AFTER, WRONG, BROKEN = "2.0.0", "2.1.0", "2.2.0", "2.3.0"
OPTION = "cluster_torch_version"
# The unit, by which a launch is recognised on its node.
LAUNCH, NOTEBOOK = "muster-launch-20261124-101010-abcd", "standin-notebook"
PIP_CONF = "~/.config/pip/pip.conf"


@dataclass
class Cluster:
    """Three nodes with stub wheels and their own inventory."""

    machines: list[Machine]
    index: PackageIndex
    inventory: Path
    folder: Path
    runs: int = 0

    def play(self, playbook: str = BOOK, *, check: bool = False, **extravars: Any) -> Result:
        self.runs += 1
        folder = self.folder / f"run{self.runs}"
        folder.mkdir()
        return run_playbook(folder, playbook, inventory=self.inventory, extravars=extravars, check=check)

    def versions(self) -> dict[str, str]:
        """Return the release of each node's current environment, read from outside."""
        return {machine.name: link(machine).partition("-")[0] for machine in self.machines}

    def start(self) -> None:
        result = self.play("playbooks/pytorch.yml")
        assert result.rc == 0, result.stdout
        assert self.versions() == all_have(BEFORE)

    def final_message(self, result: Result) -> str:
        (said,) = {done["msg"] for done in result.results(END).values()}
        return str(said)

    @property
    def listed(self) -> str:
        return str(yaml.safe_load((self.inventory / "hosts.yml").read_text())["gpu_nodes"]["vars"][OPTION])


def all_have(release: str) -> dict[str, str]:
    return dict.fromkeys(NODES, release)


def link(machine: Machine) -> str:
    return machine.inside("sh", "-c", f"basename $(readlink {ROOT}/current)").stdout.strip()


@pytest.fixture(scope="module")
def cluster(three_nodes: dict[str, Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    machines = list(three_nodes.values())
    folder = tmp_path_factory.mktemp("upgrade")
    wheels = folder / "index"
    wheels.mkdir()
    gateway = machines[0].address.rpartition(".")[0] + ".1"
    index = PackageIndex(wheels, gateway)
    index.start()
    inventory = make_lab(
        folder / "lab",
        at(*machines),
        cluster_torch_version=BEFORE,
        cluster_artifacts_dir=str(folder / "artifacts"),
        pytorch_root=ROOT,
        pytorch_index_url=index.url,
        pytorch_packages=[],
        pytorch_reviewed_lock=False,
        cluster_nproc_per_node=1,
        ddp_smoke_stall_timeout=300,
    )
    shutil.copy(SANDBOX_KNOWS, inventory / "known_hosts")
    real = machines[0].inside("sh", "-c", f"echo {SITE_PACKAGES_OF_TORCH}").stdout.strip()
    for release in (BEFORE, AFTER):
        relabelled_torch(wheels, f"{release}+cpu", real)
    relabelled_torch(wheels, f"{WRONG}+cpu", real, spoilt="node3")
    relabelled_torch(wheels, f"{BROKEN}+cpu", real, broken="node3")
    trust = f"mkdir -p $(dirname {PIP_CONF}) && printf '[global]\\ntrusted-host = {gateway}\\n' >{PIP_CONF}"
    for machine in machines:
        machine.inside("sh", "-ec", trust)
    cluster = Cluster(machines, index, inventory, folder)
    cluster.start()
    yield cluster
    index.stop()
    for machine in machines:
        machine.inside("sh", "-c", f"rm -rf {ROOT} {PIP_CONF}")


def test_check_mode_shows_the_plan_and_changes_nothing(cluster: Cluster) -> None:
    result = cluster.play(torch_version=AFTER, check=True)
    assert result.rc == 0, result.stdout
    shown = result.results(PLAN)["node1"]["msg"].splitlines()
    assert shown[0] == f"changes  node1, node2, node3: PyTorch {BEFORE} -> {AFTER}"
    assert shown[2] == "order    node3 first, alone, then node1, then node2; a failed batch stops the upgrade"
    assert cluster.versions() == all_have(BEFORE)


def test_wrong_result_on_the_first_node_ends_the_upgrade(cluster: Cluster) -> None:
    result = cluster.play(torch_version=WRONG)
    assert result.rc != 0
    assert cluster.versions() == {**all_have(BEFORE), "node3": WRONG}
    said = cluster.final_message(result)
    assert said.startswith("node3: the launch finished, but the result is wrong."), said
    assert "a matrix product (float32) differs from the exact integer result" in said
    assert "The upgrade stops: node1, node2 and the inventory are unchanged." in said
    assert "playbooks/upgrade.yml" in said
    assert "-e rollback=true" in said
    assert cluster.listed == BEFORE


def test_rollback_restores_the_release_in_the_inventory(cluster: Cluster) -> None:
    result = cluster.play(rollback="true")
    assert result.rc == 0, result.stdout
    assert {text.partition(":")[0] for text in result.changed} == {"node3"}
    assert cluster.versions() == all_have(BEFORE)
    assert cluster.final_message(result) == f"3 nodes have PyTorch {BEFORE}."


def test_nodes_in_use_are_postponed(cluster: Cluster) -> None:
    launching, reading, _ = cluster.machines
    launching.inside("systemd-run", f"--unit={LAUNCH}", "--uid=muster", "sleep", "infinity")
    notebook = f"{ROOT}/current/bin/python -c 'import torch, time; time.sleep(9999)'"
    reading.inside("systemd-run", f"--unit={NOTEBOOK}", "--uid=muster", "sh", "-c", f"exec {notebook}")
    pid = reading.inside("systemctl", "show", "--value", "--property=MainPID", NOTEBOOK).stdout.strip()
    try:
        result = cluster.play(torch_version=AFTER, upgrade_smoke="none", batch=2)
        still = [launching.inside("systemctl", "is-active", LAUNCH), reading.inside("systemctl", "is-active", NOTEBOOK)]
        back = cluster.play(rollback="true", torch_version=BROKEN)
    finally:
        launching.inside("systemctl", "stop", LAUNCH)
        reading.inside("systemctl", "stop", NOTEBOOK)
    assert [one.stdout.strip() for one in still] == ["active"] * 2
    assert result.rc != 0
    assert cluster.versions() == {**all_have(BEFORE), "node3": AFTER}
    said = cluster.final_message(result)
    launch_id = LAUNCH.removeprefix("muster-launch-")
    assert f"node1 is postponed: launch {launch_id} of muster." in said
    assert f"node2 is postponed: PID {pid} of muster (" in said
    assert "node3 is upgraded. The inventory remains unchanged until all nodes are upgraded." in said
    assert cluster.listed == BEFORE
    assert back.rc != 0
    assert f"have no environment with PyTorch {BROKEN}" in back.stdout


def test_same_command_completes_a_killed_run(cluster: Cluster) -> None:
    """The run is killed while it upgrades the second node. The next run tests the upgraded first node again."""
    folder = cluster.folder / "killed"
    folder.mkdir()
    arguments = (BOOK, "-e", f"torch_version={AFTER}", "-e", "upgrade_smoke=none")
    run = Run(folder, *arguments, inventory=cluster.inventory)
    second = cluster.machines[0]
    beside = ("sh", "-c", f"ls -d {ROOT}/envs/{AFTER}-*")
    try:
        until(lambda: second.inside(*beside, check=False).returncode == 0, PATIENCE, "the environment is being built")
    finally:
        run.kill()
    assert cluster.listed == BEFORE
    result = cluster.play(torch_version=AFTER)
    assert result.rc == 0, result.stdout
    shown = result.results(PLAN)["node1"]["msg"]
    assert "order    node3 first, alone" in shown
    assert cluster.versions() == all_have(AFTER)
    assert cluster.listed == AFTER
    tried = [done["plan"]["nodes"] for done in result.results("Launch the acceptance test").values()]
    assert any({one["node"] for one in nodes} == set(NODES) for nodes in tried)


def test_same_command_completes_runs_killed_at_five_moments(cluster: Cluster) -> None:
    """Each run starts with only the previous release installed."""
    folder = cluster.folder / "killed_at_moments"
    folder.mkdir()
    arguments = (BOOK, "-e", f"torch_version={AFTER}", "-e", "upgrade_smoke=none")

    def as_before() -> None:
        if cluster.versions() != all_have(BEFORE):
            back = cluster.play(rollback="true")
            assert back.rc == 0, back.stdout
        assert (cluster.versions(), cluster.listed) == (all_have(BEFORE), BEFORE)
        for machine in cluster.machines:
            machine.inside("sh", "-c", f"rm -rf {ROOT}/envs/{AFTER}-*")

    as_before()
    whole = Run(folder, *arguments, inventory=cluster.inventory).end()
    assert whole.rc == 0, whole.shown
    for moment in moments(5, whole.seconds):
        as_before()
        run = Run(folder, *arguments, inventory=cluster.inventory)
        run.over_within(moment)
        run.kill()
        assert set(cluster.versions().values()) <= {BEFORE, AFTER}, run.task
        for machine in cluster.machines:
            assert machine.ssh_answers()
            machine.inside(f"{ROOT}/current/bin/python", "-c", "import torch")
        again = Run(folder, *arguments, inventory=cluster.inventory).end()
        assert again.rc == 0, f"{run.task}: {again.shown}"
        assert (cluster.versions(), cluster.listed) == (all_have(AFTER), AFTER), run.task


def test_second_run_changes_nothing(cluster: Cluster) -> None:
    before = (cluster.inventory / "hosts.yml").read_bytes()
    result = cluster.play(torch_version=AFTER)
    assert (result.rc, result.changed) == (0, []), result.stdout
    assert (cluster.inventory / "hosts.yml").read_bytes() == before


def test_failed_batch_ends_the_upgrade(cluster: Cluster) -> None:
    before = cluster.versions()
    result = cluster.play(torch_version=BROKEN, canary="node1", batch=2, upgrade_smoke="none")
    assert result.rc != 0
    assert cluster.versions() == {**before, "node1": BROKEN, "node2": BROKEN}, result.stdout
    assert "libstandin.so.1: no such file" in cluster.final_message(result)
    back = cluster.play(rollback="true")
    assert back.rc == 0, back.stdout
    assert cluster.versions() == before
