"""Kill the steps up to network at random moments. The next run must complete the steps without leftovers, and SSH must
work at all times.

One random moment is in each twentieth of the duration of an undisturbed run. Every fourth run starts on bare machines,
the other runs on nodes that molecule's break.yml has damaged.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from killable import Run, logins
from machines import find_machine
from paths import ROOT
from snapshot import differences, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine

pytestmark = pytest.mark.slow

NODES = ("node1", "node2")
STARTS = ("bare", "damaged")
STEPS = ("site.yml", "--tags=baseline,network")
BREAKS = yaml.safe_load((ROOT / "molecule/default/break.yml").read_text())[0]["vars"]["breaks"]
# Temporary objects, by the names that guards, writers and Ansible modules use.
LEFT = (
    "systemctl list-units --all --plain --no-legend 'muster-*'; systemctl list-units --failed --plain --no-legend;"
    "ls -A /var/lib/muster/guard 2>/dev/null;"
    "find /etc /home /root /usr/local /var/lib/muster -name '.*.new' -o -name '.ansible_tmp*' -o -name '.new-*'"
    " -o -name 'muster-*-undo*';"
    "ps -eo args | grep -E '[A]nsiballZ|[g]uard.py|[p]ython3 -I -S' || true"
)
# Generated on each machine, or by package scripts.
BY_CHANCE = re.compile(r"/etc/(machine-id|ld\.so\.cache|ssh/ssh_host_.*|(passwd|group|shadow|gshadow|subuid|subgid)-)")
KEYS = re.compile(r"AAAA[0-9A-Za-z+/=]+|(?<=KEY-----\n)[0-9A-Za-z+/=\n]+")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "share" in metafunc.fixturenames:
        kills = metafunc.config.getoption("--kills")
        chance = random.Random(metafunc.config.getoption("--seed"))
        shares = [(number + chance.random()) / kills for number in range(kills)]
        chance.shuffle(shares)
        starts = ["damaged" if number % 4 else "bare" for number in range(kills)]
        cases = list(zip(starts, shares, strict=True))
        ids = [f"{start}-{share:.3f}" for start, share in cases]
        metafunc.parametrize(("start", "share"), cases, ids=ids)


class Cluster:
    """The machines, their state after undisturbed runs, and the duration of these runs."""

    def __init__(self, up: Callable[[], None], folders: pytest.TempPathFactory) -> None:
        self.up = up
        self.folders = folders
        self.seconds: dict[str, float] = {}
        self.sound: dict[str, dict[str, dict[str, str]]] = {}
        self.rows: list[dict[str, Any]] = []
        self.up()
        for start in STARTS:
            self.begin(start)
            run = Run(folders.mktemp(start), *STEPS).end()
            assert run.rc == 0, run.shown
            self.seconds[start] = run.seconds
            self.sound[start] = {machine.name: state(machine) for machine in self.machines}

    def begin(self, start: str) -> None:
        if start == "bare":
            self.make_bare()
        else:
            self.damage()

    def make_bare(self) -> None:
        for name in NODES:
            find_machine(name).podman("rm", "--force", "--time=0")
        self.up()
        self.machines: list[Machine] = [find_machine(name) for name in NODES]

    def damage(self) -> None:
        for machine in self.machines:
            for each in BREAKS[machine.name]:
                machine.inside("sh", "-ec", each["does"])
                proved = machine.inside("sh", "-ec", each["proof"], check=False)
                assert proved.returncode == 0, f"{machine.name}: {each['what']}"


def state(machine: Machine) -> dict[str, str]:
    """Return the machine's state without values that differ between machines."""
    return {path: KEYS.sub("KEY", text) for path, text in take(machine).items() if not BY_CHANCE.fullmatch(path)}


def leftovers(machine: Machine) -> str:
    return machine.inside("sh", "-c", LEFT).stdout


@pytest.fixture(scope="module")
def cluster(
    up: Callable[[], None],
    figures: Callable[[str, list[dict[str, Any]]], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    cluster = Cluster(up, tmp_path_factory)
    yield cluster
    if cluster.rows:
        figures("kills", cluster.rows)


def test_next_run_completes_a_killed_run(cluster: Cluster, start: str, share: float, tmp_path: Path) -> None:
    for _ in range(3):
        cluster.begin(start)
        with logins(cluster.machines) as tried:
            killed = Run(tmp_path, *STEPS)
            if not killed.over_within(share * cluster.seconds[start]):
                killed.kill()
                again = Run(tmp_path, *STEPS).end()
                third = Run(tmp_path, *STEPS).end()
                third.kill()  # its SSH connections are still open
                break
        # The machine is less busy than before, so update the duration.
        cluster.seconds[start] = killed.end().seconds
    else:
        raise AssertionError(f"it was over each time before it could be killed:\n{killed.shown}")

    cluster.rows.append(
        {
            "begun": start,
            "killed after": f"{killed.seconds:.1f} s",
            "during": killed.task,
            "the next run": f"{again.seconds:.0f} s, {again.changed} changes",
            "the one after": f"{third.changed} changes",
            "logins": tried.good,
            "refused by a reload": tried.refused,
            "failed": len(tried.failed),
            "slowest": f"{tried.slowest:.1f} s",
        }
    )
    assert again.rc == 0, again.shown
    assert third.rc == 0, third.shown
    assert third.changed == 0, third.shown
    assert tried.failed == []
    for machine in cluster.machines:
        assert leftovers(machine) == "", machine.name
        assert machine.inside("dpkg", "--audit").stdout == "", machine.name
        assert machine.inside("apt-get", "check", check=False).returncode == 0, machine.name
        other = differences(cluster.sound[start][machine.name], state(machine))
        assert not other, "\n".join([machine.name, *other])


def test_nodes_pass_the_network_tests_after_the_kills(cluster: Cluster) -> None:
    look = [sys.executable, "-m", "pytest", "-q", f"--nodes={','.join(NODES)}", "tests/integration/test_network.py"]
    done = subprocess.run(look, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
