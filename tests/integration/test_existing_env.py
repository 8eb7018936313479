"""An existing conda environment on the nodes: detected, verified, used by a launch, and left unchanged.

rattler installs it from the local channel as conda would. Its Python and torch are links to the node's own, created
on the node because packages may not contain them. The conda history is written by hand, because conda is not available.
"""

from __future__ import annotations

import json
import os
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from conda_packages import BUILT_AT, index, package
from muster.pytorch.conda import PLATFORMS, CondaSpecs
from muster_controller.pytorch.conda import put_together, solve
from paths import ARTIFACTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

pytest.importorskip("rattler", reason="conda packages need py-rattler on the controller (requirements/conda.txt)")

BASE = "/opt/miniconda3"
PREFIX = f"{BASE}/envs/train"
NODES = ("node1", "node2")
REAL = "/opt/muster/pytorch/current/lib/python3.11/site-packages"
SITE = "lib/python3.11/site-packages"
HISTORY = f"==> 2026-05-04 09:12:01 <==\n# cmd: {BASE}/bin/conda create --name train\n# conda version: 25.3.1\n"
TORCHRUN = f"#!{BUILT_AT}/bin/python\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n"
SCRIPT = """
import sys, torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1) * dist.get_rank()
dist.all_reduce(total)
print("ran in", sys.prefix, "sum", int(total), flush=True)
dist.destroy_process_group()
"""
# All files except byte code.
STATE = f"find {BASE} -not -name '*.pyc' -not -name __pycache__ -printf '%p %m %u %s %T@ %l\\n' | sort"


def make_archive(folder: Path) -> Path:
    """Build the environment for its final path and pack it into one archive."""
    channel = folder / "channel"
    python = {
        "bin/python3.11": b"#!/bin/sh\n",
        "bin/python": b"->python3.11",
        "pyvenv.cfg": b"home = /usr/bin\n",
    }
    torch = {f"{SITE}/rest.pth": f"{REAL}\n".encode()}
    for subdir in ("linux-64", "linux-aarch64"):
        package(channel / subdir, "python", "3.11.2", python)
        package(channel / subdir, "pytorch", "2.13.0", {**torch, "bin/torchrun": TORCHRUN.encode()}, depends=["python"])
    (channel / "noarch").mkdir()
    index(channel)
    facts = {"kernel": "6.1", "glibc": "2.36"}
    section = solve(CondaSpecs((channel.as_uri(),), ("pytorch",)), PLATFORMS[os.uname().machine], facts)
    with put_together(section, PREFIX) as archive:
        kept = folder / "train.tar"
        kept.write_bytes(archive.path.read_bytes())
    with tarfile.open(kept) as content:
        assert any(name.endswith("conda-meta/pytorch-2.13.0-0.json") for name in content.getnames())
    return kept


class Cluster:
    def __init__(self, play: Play, machines: list[Machine], folder: Path) -> None:
        self.play, self.machines, self.folder = play, machines, folder
        self.archive = make_archive(folder)

    def put(self, machine: Machine) -> None:
        machine.podman_copy(self.archive, "/tmp/train.tar")
        history = f"printf '%s' '{HISTORY}' > {PREFIX}/conda-meta/history"
        links = f"ln -sf /usr/bin/python3.11 {PREFIX}/bin/python3.11; ln -s {REAL}/torch {PREFIX}/{SITE}/torch"
        unpack = f"mkdir -p {PREFIX}; tar -C {PREFIX} -xf /tmp/train.tar; rm /tmp/train.tar"
        machine.inside("sh", "-ec", f"{unpack}; {links}; {history}")

    def run(self, playbook: str = "playbooks/pytorch.yml", *, check: bool = False, **more: Any) -> Result:
        extravars = {
            "cluster_environments": {"old": {"prefix": PREFIX}},
            "cluster_launch_nodes": list(NODES),
            **more,
        }
        limit = None if "launch" in playbook else ",".join(NODES)
        return self.play(playbook, extravars=extravars, check=check, limit=limit)

    def states(self) -> list[str]:
        return [machine.inside("sh", "-c", STATE).stdout for machine in self.machines]


@pytest.fixture(scope="module")
def cluster(
    with_pytorch: None, networked: list[Machine], play: Play, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    machines = [machine for machine in networked if machine.name in NODES]
    for machine in machines:
        machine.inside("rm", "-rf", BASE)
    yield Cluster(play, machines, tmp_path_factory.mktemp("existing"))
    for machine in machines:
        machine.inside("rm", "-rf", BASE)


@pytest.fixture(scope="module")
def installed_states(cluster: Cluster) -> list[str]:
    """Install the environment on both nodes, checking in between that the other node is reported. Return its states."""
    cluster.put(cluster.machines[0])
    result = cluster.run()
    assert result.rc != 0
    assert f"node2: environment old: {PREFIX}/bin/python does not exist." in result.stdout
    assert result.stats["failures"] == {"node2": 1}
    cluster.put(cluster.machines[1])
    return cluster.states()


def existing_environments(result: Result) -> dict[str, Any]:
    return {name: one["named"]["old"]["existing"] for name, one in result.results("Check PyTorch").items()}


def test_environment_is_detected_and_verified_without_changes(cluster: Cluster, installed_states: list[str]) -> None:
    for more in ({}, {"check": True}, {"pytorch_mode": "verify"}):
        result = cluster.run(**more)
        assert (result.rc, result.changed) == (0, []), result.stdout
        assert "[WARNING]" not in result.stdout
        version = cluster.machines[0].inside("sh", "-c", f"ls -d {REAL}/torch-*.dist-info").stdout
        version = version.strip().rpartition("/torch-")[2].removesuffix(".dist-info")
        found = {"path": PREFIX, "made_by": "conda", "python": "3.11.2", "torch": version}
        assert existing_environments(result) == dict.fromkeys(NODES, found)
    assert cluster.states() == installed_states


def test_launch_runs_in_the_environment(cluster: Cluster, installed_states: list[str]) -> None:
    script = cluster.folder / "sum.py"
    script.write_text(SCRIPT)
    result = cluster.run(
        "playbooks/launch.yml",
        launch_environment="old",
        launch_show_rank=1,
        launch_script_src=str(script),
        cluster_artifacts_dir=str(cluster.folder / "artifacts"),
    )
    assert result.rc == 0, result.stdout
    assert f"ran in {PREFIX} sum 1" in result.stdout
    assert cluster.states() == installed_states


def reported(result: Result) -> str:
    return str(next(iter(result.results("Evaluate the inspection").values()))["msg"])


def test_inspection_shows_how_to_use_the_environment(cluster: Cluster, installed_states: list[str]) -> None:
    del installed_states
    result = cluster.run("playbooks/inspect.yml", cluster_environments={})
    line = f"node1, node2: {PREFIX}: created by conda, Python 3.11, torch "
    to_add = f"To use it for launches, add 'train: {{prefix: {PREFIX}}}' to cluster_environments."
    assert line in reported(result)
    assert to_add in reported(result)
    result = cluster.run("playbooks/inspect.yml")
    assert f"node1, node2: environment old, {PREFIX}: created by conda, Python 3.11, torch " in reported(result)
    assert to_add not in reported(result)
    first, second = cluster.machines
    version = f"{PREFIX}/{SITE}/torch"
    second.inside("sh", "-ec", f"rm {version}; mkdir {version}; echo \"__version__ = '2.5.0'\" > {version}/version.py")
    try:
        result = cluster.run("playbooks/inspect.yml")
        assert "environment old differs: created by conda, Python 3.11, torch " in reported(result)
        assert "created by conda, Python 3.11, torch 2.5.0 on node2" in reported(result)
        kept = json.loads((ARTIFACTS / "inspect.json").read_text())["findings"]
        odd = {one["node"] for one in kept if (one["id"], one["status"]) == ("environment.existing.differs", "warn")}
        assert odd == set(NODES), "with two nodes, neither is the odd one"
    finally:
        second.inside("sh", "-ec", f"rm -r {version}; ln -s {REAL}/torch {version}")
    assert first.inside("readlink", version).stdout == second.inside("readlink", version).stdout


@pytest.mark.slow
def test_writable_environment_is_reported_or_refused(cluster: Cluster, installed_states: list[str]) -> None:
    del installed_states
    machine = cluster.machines[0]
    machine.inside("chown", "-R", "admin:", BASE)
    try:
        result = cluster.run()
        assert result.rc == 0, result.stdout
        assert f"node1: environment old: {BASE} belongs to admin, so another user can change" in result.stdout
        machine.inside("chmod", "o+w", f"{PREFIX}/bin")
        result = cluster.run()
        assert result.stats["failures"] == {"node1": 1}
        assert f"node1: environment old: every user can write to {PREFIX}/bin, and thus change" in result.stdout
        machine.inside("chmod", "o-w", f"{PREFIX}/bin")
        machine.inside("chmod", "0700", BASE)
        result = cluster.run()
        assert result.stats["failures"] == {"node1": 1}
        assert "cannot be started by muster: muster cannot start its Python: Permission denied" in result.stdout
    finally:
        machine.inside("sh", "-ec", f"chmod 0755 {BASE}; chmod o-w {PREFIX}/bin; chown -R root: {BASE}")


def test_environment_removed_from_the_inventory_is_kept(cluster: Cluster, installed_states: list[str]) -> None:
    del installed_states
    before = cluster.states()
    result = cluster.run(cluster_environments={})
    assert (result.rc, result.changed) == (0, []), result.stdout
    assert cluster.states() == before
    refused = cluster.run(cluster_environments={"old": {"prefix": "/opt/muster/pytorch/current"}})
    assert "is in /opt/muster/pytorch, where Muster builds and removes" in refused.stdout
