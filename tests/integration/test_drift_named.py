"""Changes in named environments, one of wheels and one of conda packages, are found and repaired.

The index and torch are stubs; see test_environments.py and conda_packages.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from conda_packages import make_channel
from counted import PIP_CONF, make_tiny
from drift_faults import wheel
from package_index import PackageIndex
from paths import ARTIFACTS
from standin_wheels import relabelled_torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

pytestmark = pytest.mark.slow
pytest.importorskip("rattler", reason="conda packages need py-rattler on the controller (requirements/conda.txt)")

ROOT = "/opt/muster/pytorch/named"
TEAM, BIO = f"{ROOT}/team/current", f"{ROOT}/bio/current"
SITE = "lib/python3.11/site-packages"
NODES = ("node1", "node2")
YML = "channels: [{channel}]\ndependencies: [greet, python 3.11.*]\n"
# By node and environment: the administrator's command, the finding, and words of the finding and of the command.
FAULTS = {
    ("node1", "team"): (
        f"{wheel()} && sudo {TEAM}/bin/pip install --no-index /tmp/somebodys-1.0-py3-none-any.whl",
        "drift.environment",
        "environment team: somebodys 1.0 is installed but not in the lock",
        "pip install --no-index",
    ),
    ("node2", "team"): (
        f"sudo sed -i s/1.0/9.9/ {TEAM}/{SITE}/tiny.py",
        "drift.content",
        "tiny was changed in the environment team",
        f"{SITE}/tiny.py",
    ),
    ("node1", "bio"): (
        f"sudo rm {BIO}/bin/greet",
        "drift.environment",
        "environment bio: greet: bin/greet is missing",
        f"rm {BIO}/bin/greet",
    ),
    ("node2", "bio"): (
        f"echo X = 1 | sudo tee {BIO}/{SITE}/somebodys.py",
        "drift.content",
        "somebodys was added to the environment bio",
        f"tee {BIO}/{SITE}/somebodys.py",
    ),
}
SAID = (f"{TEAM}/bin/python -c 'import tiny; print(tiny.VERSION)'", f"sudo -u muster {BIO}/bin/greet | cut -d' ' -f1,2")


class Cluster:
    """Two nodes with both environments, and the inventory variables of the environments."""

    def __init__(self, play: Play, machines: dict[str, Machine], folder: Path) -> None:
        self.play, self.machines = play, machines
        wheels = folder / "index"
        wheels.mkdir()
        make_tiny(wheels, "1.0")
        link = "ls -d /opt/muster/pytorch/current/lib/python3*/site-packages"
        real = machines["node1"].inside("sh", "-c", f"readlink -f $({link})").stdout.strip()
        relabelled_torch(wheels, "2.99.0+cpu", real)
        self.gateway = machines["node1"].address.rpartition(".")[0] + ".1"
        self.index = PackageIndex(wheels, self.gateway)
        make_channel(folder / "channel")
        (folder / "team.txt").write_text("tiny==1.0\n")
        (folder / "environment.yml").write_text(YML.format(channel=(folder / "channel").as_uri()))
        self.given: dict[str, Any] = {
            "cluster_environments": {
                "team": {"requirements": str(folder / "team.txt"), "torch": "2.99.0"},
                "bio": {"conda": str(folder / "environment.yml")},
            },
            "pytorch_index_url": self.index.url,
            "pytorch_find_links": [],
            "pytorch_extra_ca": "",
            "pytorch_lock": str(folder / "pytorch.lock.txt"),
        }

    def run(self, playbook: str, *, tags: str | None = None, **more: Any) -> Result:
        return self.play(playbook, extravars={**self.given, **more}, tags=tags, limit=",".join(NODES))

    def drift(self, **more: Any) -> tuple[Result, list[dict[str, Any]]]:
        """Run the drift playbook. Return its result and the differences of these environments."""
        result = self.run("playbooks/drift.yml", **more)
        kept = json.loads((ARTIFACTS / "latest/drift.json").read_text())["differences"]
        return result, [one for one in kept if "environment team" in one["what"] or "environment bio" in one["what"]]

    def outputs(self) -> list[str]:
        return [machine.ssh(command).stdout for machine in self.machines.values() for command in SAID]


@pytest.fixture(scope="module")
def cluster(
    with_pytorch: None, networked: list[Machine], play: Play, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    machines = {machine.name: machine for machine in networked if machine.name in NODES}
    cluster = Cluster(play, machines, tmp_path_factory.mktemp("drift_named"))
    trust = f"mkdir -p $(dirname {PIP_CONF}) && printf '[global]\\ntrusted-host = {cluster.gateway}\\n' >{PIP_CONF}"
    for machine in machines.values():
        machine.inside("sh", "-ec", f"rm -rf {ROOT}; {trust}")
    cluster.index.start()
    try:
        result = cluster.run("site.yml", tags="pytorch")
        assert result.rc == 0, result.stdout
        yield cluster
    finally:
        cluster.index.stop()
        for machine in machines.values():
            machine.inside("sh", "-c", f"rm -rf {PIP_CONF} {ROOT} /tmp/somebodys-1.0-py3-none-any.whl")


def test_changes_are_found_with_user_and_time_and_repaired(cluster: Cluster) -> None:
    before = cluster.outputs()
    _, calm = cluster.drift()
    assert calm == []
    for (name, _), (command, *_) in FAULTS.items():
        cluster.machines[name].ssh(command)

    result, found = cluster.drift()
    assert result.rc == 2
    by_place = {(one["node"], one["what"].partition("environment ")[2].partition(":")[0]): one for one in found}
    assert by_place.keys() == FAULTS.keys(), found
    assert len(found) == len(FAULTS), found
    for place, (_, check, what, how) in FAULTS.items():
        one = by_place[place]
        assert (one["id"], one["status"], one["by"]) == (check, "fail", "admin"), one
        assert what in one["what"]
        assert how in one["how"], one
        assert one["since"], one

    result, left = cluster.drift(repair=True)
    assert left == [], result.stdout
    assert cluster.outputs() == before
    again = cluster.run("site.yml", tags="pytorch")
    assert (again.rc, again.changed) == (0, []), again.stdout
    for name in NODES:
        machine = cluster.machines[name]
        assert machine.inside("ls", f"{BIO}/{SITE}/somebodys.py", check=False).returncode
        assert machine.inside("ls", f"{TEAM}/{SITE}/somebodys.py", check=False).returncode
