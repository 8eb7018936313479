"""Controller problems during a launch: a full disk, a failed log copy, a second Ctrl-C, and a second controller.

The nodes use a torchrun stub. A launch runs until its gate file exists.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

import standin_torchrun
from drill import Drill, hit, processes
from paths import ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

pytestmark = pytest.mark.slow

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
    drill.clean_up(nodes)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a small file system at the folder of the artifacts."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def check_nothing_left(drill: Drill, *nodes: Machine) -> None:
    assert processes(drill.launch_id) == {}
    for machine in nodes:
        assert machine.inside("test", "-e", f"/run/muster/launches/{drill.launch_id}", check=False).returncode != 0


@pytest.fixture
def detached(drill: Drill) -> Drill:
    """Return a detached launch that never gives up a node, however busy this machine is."""
    drill.variables.update(launch_detached=True, launch_time_limit=1800)
    return drill


def watched(drill: Drill) -> Drill:
    drill.begin().wait()
    return Drill(drill.folder, {**drill.variables, "launch_attach": drill.launch_id})


def test_full_disk_on_the_controller_does_not_end_the_launch(detached: Drill, nodes: tuple[Machine, Machine]) -> None:
    with small_disk(detached.folder / "kept", "400k"):
        watcher = watched(detached)
        fill(detached.folder / "kept/ballast")
        assert shutil.disk_usage(detached.folder / "kept").free == 0
        process = watcher.begin_in_terminal()
        until(lambda: b"No space left on device; the launch goes on" in watcher.shown, PATIENCE, "the notice appears")
        ranks = set(processes(detached.launch_id))
        until(lambda: b"[rank 0] step " in watcher.shown, PATIENCE, "the launch is still watched")
        assert set(processes(detached.launch_id)) == ranks
        for machine in nodes:
            detached.open_gate(machine)
        assert process.wait(PATIENCE) == 0, watcher.shown
    assert b"/verdict.json: No space left on device. It is: healthy: " in watcher.shown
    check_nothing_left(detached, *nodes)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(bytes(4096))


def test_failed_log_copy_leaves_a_reported_gap(detached: Drill, nodes: tuple[Machine, Machine]) -> None:
    watcher = watched(detached)
    process = watcher.begin_in_terminal()
    watcher.in_step()
    log = detached.run / "logs/node1/rank0.stdout.log"
    log.rename(log.with_name("before"))
    log.mkdir()
    until(lambda: b"Is a directory; the launch goes on" in watcher.shown, PATIENCE, "the notice appears")
    log.rmdir()
    until(log.is_file, PATIENCE, "the log copy continues")
    for machine in nodes:
        detached.open_gate(machine)
    assert process.wait(PATIENCE) == 0, watcher.shown
    assert watcher.verdict()["status"] == "healthy"
    assert watcher.shown.count(b"Is a directory") == 1
    assert " missing here ...\n" in log.read_text()
    check_nothing_left(detached, *nodes)


def test_second_ctrl_c_still_ends_the_launch(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    """A stopped rank does not handle SIGTERM, so the launch ends only after launch_stop_timeout."""
    drill.variables["launch_stop_timeout"] = 8
    process = drill.begin_in_terminal()
    drill.in_step()
    stopped = drill.pid(1)
    hit(stopped, signal.SIGSTOP)
    os.write(drill.terminal, b"\x03")
    until(lambda: drill.shown.count(b"^C") == 1, PATIENCE, "Ctrl-C was received")
    until(
        lambda: not any(env.get("RANK") == "0" for env in processes(drill.launch_id).values()),
        PATIENCE,
        "the launch is ending",
    )
    os.write(drill.terminal, b"\x03")
    until(lambda: drill.shown.count(b"^C") == 2, PATIENCE, "the second Ctrl-C was received")
    assert process.wait(PATIENCE) != 0
    until(drill.has_verdict, PATIENCE, "the verdict is written")
    assert "stopped early" in drill.verdict()["summary"], drill.shown
    check_nothing_left(drill, *nodes)


def test_two_attached_controllers_do_not_end_a_detached_launch(detached: Drill, nodes: tuple[Machine, Machine]) -> None:
    first = watched(detached)
    first.begin().in_step()
    second = Drill(first.folder, first.variables)
    process = second.begin_in_terminal()
    until(lambda: b"this one only shows output" in second.shown, PATIENCE, "the second controller watches")
    ranks = set(processes(detached.launch_id))
    os.write(second.terminal, b"\x03")
    assert process.wait(PATIENCE) is not None
    assert set(processes(detached.launch_id)) == ranks
    for machine in nodes:
        detached.open_gate(machine)
    assert first.end()["status"] == "healthy", first.runner.stdout.read()
    log = (detached.run / "logs/node1/rank0.stdout.log").read_text().splitlines()
    assert log == [f"step {step}" for step in range(len(log))]
    check_nothing_left(detached, *nodes)
