"""Rehearsal of tests/gpu/two_nodes without a GPU, on a simulated device machine, with Gloo."""

from __future__ import annotations

import json
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from paths import ROOT
from pretended_device import Device, device, make_root

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 620  # seconds, on two processors shared with other tests; GPU machines have more
# Possible leftovers: mounts, links, routes, processes, cgroups, and files in shared folders.
STATE = """
cut -d' ' -f1-3 /proc/mounts; ls /sys/class/net /run /tmp /repo/artifacts/two-nodes
ps -eo stat=,args= | grep -v 'ps -eo'
find /sys/fs/cgroup -maxdepth 2 -name 'two-nodes-*'; cat /proc/sys/net/ipv4/ip_forward
"""


pytestmark = pytest.mark.usefixtures("prepared")


@pytest.fixture(scope="module")
def prepared() -> None:
    if not (ROOT / ".two_nodes/wheels").is_dir():
        subprocess.run([ROOT / "tests/gpu/two_nodes/fetch"], check=True)
    make_root()


def rehearse(machine: Device, out: Path, *names: str) -> dict[str, tuple[str, str]]:
    """Run experiments. Return the outcome and the details of each."""
    before = machine.run("sh", "-c", STATE).stdout.splitlines()
    done = machine.run("tests/gpu/two_nodes/run", f"--limit={LIMIT}", *names, timeout=LIMIT + 60)
    print(done.stdout, done.stderr)
    assert machine.run("sh", "-c", STATE).stdout.splitlines() == before
    assert (out / "summary.txt").read_text() in done.stdout
    assert sorted(path.name for path in out.iterdir()) == [
        "artifacts.tgz",
        "recordings.tgz",
        "summary.json",
        "summary.txt",
    ]
    kept = json.loads((out / "summary.json").read_text())
    assert list(kept["steps"]) == ["place", "base", "controller", "nodes", "boot"]
    assert "no GPU: the ranks talk over Gloo" in kept["machine"]
    return {one["name"]: (one["outcome"], one["seen"]) for one in kept["experiments"]}


def test_rehearsal_skips_only_the_experiment_that_needs_a_gpu(tmp_path: Path) -> None:
    names = ("probe", "healthy", "acceptance", "stopped", "recorder", "dropped", "hog")
    with device(tmp_path) as machine:
        seen = rehearse(machine, tmp_path, *names)
    assert {name: outcome for name, (outcome, _) in seen.items()} == {
        "probe": "PASS",
        "healthy": "PASS",
        "acceptance": "PASS",
        "stopped": "PASS",
        "recorder": "PASS",
        "dropped": "PASS",
        "hog": "left out",
    }
    assert seen["healthy"] == ("PASS", "healthy gloo")
    assert seen["hog"] == ("left out", "needs a GPU: fills the GPU memory")
    with tarfile.open(tmp_path / "recordings.tgz") as packed:
        assert {f"recordings/{name}.txt" for name in names[:-1]} <= set(packed.getnames())
        live = packed.extractfile("recordings/stopped_live.txt")
        assert live is not None
        assert "  Symptom: the launch has not ended\n" in live.read().decode()


def test_nodes_work_with_cgroup_v2_only(tmp_path: Path) -> None:
    """The kernel also lists the cgroup v1 tree, which no node uses. A launch must still find its own cgroup."""
    with device(tmp_path, v2_alone=True) as machine:
        assert rehearse(machine, tmp_path, "killed") == {
            "killed": ("PASS", "failed process.killed, launch.signal, launch.cause")
        }
