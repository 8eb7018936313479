"""A controller that fails while a launch runs: a full disk, a copy that breaks, Ctrl-C twice, and company.

The nodes have a stand-in of torchrun. Until the gate is open, a launch goes on for as long as it takes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

import standin_torchrun
from drill import PATIENCE, Drill, hit, processes, until
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

LEASE = 10.0
TALK = ROOT / "tests/integration/payloads/talk.py"


@pytest.fixture(scope="module")
def nodes(play: Play, node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    machines = node("node1"), node("node2")
    standin_torchrun.provide(play, *machines)
    return machines


@pytest.fixture
def drill(tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Drill]:
    drill = Drill(tmp_path, {"cluster_torchrun": standin_torchrun.TORCHRUN, "launch_script_src": str(TALK)})
    yield drill
    for machine in nodes:
        if drill.run.is_dir() and drill.runs():
            machine.inside("systemctl", "stop", drill.unit(), check=False)
        machine.inside("rm", "--force", drill.gate)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A small file system of the controller's own, where the artifacts go."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def goes_on_for_longer_than_a_lease(drill: Drill) -> None:
    """Its ranks are the same for longer than they would be if nobody had looked at them."""
    ranks = {rank: drill.pid(rank) for rank in range(4)}
    deadline = time.monotonic() + LEASE + 5
    while time.monotonic() < deadline:
        assert ranks == {rank: drill.pid(rank) for rank in range(4)}
        time.sleep(0.5)


def nothing_is_left(drill: Drill, *nodes: Machine) -> None:
    assert processes(drill.launch_id) == {}
    for machine in nodes:
        assert machine.inside("test", "-e", f"/run/muster/launches/{drill.launch_id}", check=False).returncode != 0


def test_a_full_disk_of_the_controller_ends_nothing(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    with small_disk(drill.folder / "kept", "400k"):
        drill.begin().in_step()
        fill(drill.folder / "kept/ballast")
        assert shutil.disk_usage(drill.folder / "kept").free == 0
        goes_on_for_longer_than_a_lease(drill)
        drill.open_gate(nodes[0])
        drill.open_gate(nodes[1])
        drill.wait()
        assert not drill.has_verdict()
    shown = drill.runner.stdout.read()
    assert drill.result()["verdict"]["status"] == "healthy", shown
    assert "could not be kept: No space left on device; the launch goes on" in shown
    assert "/verdict.json: No space left on device. It is: healthy: " in shown
    nothing_is_left(drill, *nodes)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(bytes(4096))


@pytest.mark.slow
def test_a_copy_that_breaks_is_a_gap(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    drill.begin().in_step()
    log = drill.run / "logs/node1/rank0.stdout.log"
    log.rename(log.with_name("before"))
    log.mkdir()
    goes_on_for_longer_than_a_lease(drill)
    log.rmdir()
    until(log.is_file, PATIENCE, "its copy goes on")
    drill.open_gate(nodes[0])
    drill.open_gate(nodes[1])
    verdict = drill.end()
    shown = drill.runner.stdout.read()
    assert verdict["status"] == "healthy", shown
    assert shown.count("could not be kept: Is a directory; the launch goes on") == 1
    assert " left out here ...\n" in log.read_text()
    nothing_is_left(drill, *nodes)


@pytest.mark.slow
def test_ctrl_c_twice_ends_it_all_the_same(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    """A rank that stands still cannot hear SIGTERM, so that the end takes as long as launch_stop_timeout says."""
    drill.variables["launch_stop_timeout"] = 8
    process = drill.begin_in_terminal()
    drill.in_step()
    stopped = drill.pid(1)
    hit(stopped, signal.SIGSTOP)
    os.write(drill.terminal, b"\x03")
    until(lambda: drill.shown.count(b"^C") == 1, PATIENCE, "Ctrl-C came")
    until(lambda: not any(env.get("RANK") == "0" for env in processes(drill.launch_id).values()), PATIENCE, "it ends")
    os.write(drill.terminal, b"\x03")
    until(lambda: drill.shown.count(b"^C") == 2, PATIENCE, "Ctrl-C came again")
    assert process.wait(PATIENCE) != 0
    until(drill.has_verdict, PATIENCE, "the verdict is written")
    assert "ended early" in drill.verdict()["summary"], drill.shown
    nothing_is_left(drill, *nodes)


@pytest.mark.slow
def test_two_who_watch_a_detached_launch_end_nothing(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    drill.variables.update(launch_detached=True, launch_time_limit=1800)
    drill.begin().wait()
    attach = {"launch_attach": drill.launch_id}
    first, second = (Drill(drill.folder, {**drill.variables, **attach}) for _ in range(2))
    first.begin().in_step()
    watcher = second.begin_in_terminal()
    until(lambda: b"this one only watches" in second.shown, PATIENCE, "the second one watches")
    os.write(second.terminal, b"\x03")
    assert watcher.wait(PATIENCE) is not None
    goes_on_for_longer_than_a_lease(drill)
    drill.open_gate(nodes[0])
    drill.open_gate(nodes[1])
    assert first.end()["status"] == "healthy", first.runner.stdout.read()
    log = (drill.run / "logs/node1/rank0.stdout.log").read_text().splitlines()
    assert log == [f"step {step}" for step in range(len(log))]
    nothing_is_left(drill, *nodes)
