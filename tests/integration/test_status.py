"""The status of an idle cluster, during a launch, with a dead or quarantined node, for a user without root, and in
watch mode. The output is compared with the state of the machines.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

import standin_torchrun
from drill import Drill, processes
from launch_users import forget_launch_users, make_launch_user
from machines import NODES
from paths import ARTIFACTS, BIN, ENVIRONMENT, INVENTORY, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine

    Result = subprocess.CompletedProcess[str]

PAYLOAD = ROOT / "tests/integration/payloads/results.py"  # needs no PyTorch
HOME = b"\x1b[H"  # cursor to the top left: starts each screen in a terminal


@pytest.fixture(scope="module")
def nodes(three_nodes: dict[str, Machine]) -> dict[str, Machine]:
    for machine in three_nodes.values():
        standin_torchrun.put(machine)
    return three_nodes


def command(**variables: Any) -> list[str]:
    """Return the command that a user runs, because the tests check its own screen output."""
    return [str(BIN / "ansible-playbook"), "playbooks/status.yml", "-i", str(INVENTORY), "-e", json.dumps(variables)]


@pytest.fixture
def look(nodes: dict[str, Machine], tmp_path: Path) -> Callable[..., tuple[Result, dict[str, Any]]]:
    """Return a function that runs the command and returns its output and its JSON. tests/bench measures the time."""

    def run(*more: str, **variables: Any) -> tuple[Result, dict[str, Any]]:
        file = tmp_path / "status.json"
        file.unlink(missing_ok=True)
        known = {"cluster_artifacts_dir": str(tmp_path / "kept"), "status_json": str(file), "status_wait": 20}
        argv = [*command(**{**known, **variables}), *more]
        environment = {**os.environ, **ENVIRONMENT}
        done = subprocess.run(argv, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
        assert json.loads((tmp_path / "kept" / ARTIFACTS.name / "status.json").read_text())["schema"] == 1, done.stderr
        return done, json.loads(file.read_text())

    return run


@pytest.fixture
def launch(nodes: dict[str, Machine], tmp_path: Path) -> Iterator[Callable[..., Drill]]:
    """Return a function that starts a launch of two ranks on each of two nodes until the end of the test."""
    begun: list[Drill] = []

    def begin(user: str = "") -> Drill:
        folder = tmp_path / f"launch{len(begun)}"
        folder.mkdir()
        given = {"cluster_torchrun": standin_torchrun.TORCHRUN, "launch_script_src": str(PAYLOAD)}
        begun.append(Drill(folder, given, user=user))
        return begun[-1].begin().in_step()

    yield begin
    for drill in begun:
        for name in NODES[:2]:
            drill.open_gate(nodes[name])
        drill.wait()
        for name in NODES[:2]:
            nodes[name].inside("rm", "--force", drill.gate)


def by_name(seen: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in seen["nodes"]}


def times_of_sudo(machine: Machine) -> int:
    return machine.inside("journalctl", "--quiet", "--identifier=sudo", check=False).stdout.count("COMMAND=")


def test_idle_nodes_are_ready_and_checked_without_root(
    look: Callable[..., tuple[Result, dict[str, Any]]], nodes: dict[str, Machine]
) -> None:
    before = {name: times_of_sudo(machine) for name, machine in nodes.items()}
    done, seen = look()
    assert done.returncode == 0, done.stdout
    assert {name: times_of_sudo(machine) for name, machine in nodes.items()} == before
    assert [(node["name"], node["state"], node["ranks"]) for node in seen["nodes"]] == [
        ("node1", "ready", [0]),
        ("node2", "ready", [1]),
        ("node3", "ready", [2]),
    ]
    for name, machine in nodes.items():
        assert by_name(seen)[name]["versions"]["kernel"] == machine.inside("uname", "-r").stdout.strip()
        assert by_name(seen)[name]["versions"]["torch"].startswith("2.")
        assert by_name(seen)[name]["holders"] == []
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
    assert lines[-1] == seen["sentence"]
    assert seen["sentence"].startswith("3 of 3 nodes ready, 3 of them without a launch; no smoke run yet")
    assert not [line for line in lines if line.startswith(("PLAY", "TASK", "ok:"))]


def test_limit_hides_nodes_without_changing_ranks(look: Callable[..., tuple[Result, dict[str, Any]]]) -> None:
    done, seen = look("--limit", "node2")
    assert done.returncode == 0, done.stdout
    assert [(node["name"], node["ranks"]) for node in seen["nodes"]] == [("node2", [1])]


def test_running_launch_is_shown_to_administrators_and_users(
    look: Callable[..., tuple[Result, dict[str, Any]]], launch: Callable[..., Drill], nodes: dict[str, Machine]
) -> None:
    drill = launch()
    assert processes(drill.launch_id)
    for name in NODES:
        forget_launch_users(nodes[name])
    make_launch_user("ada", nodes.values())
    before = {name: times_of_sudo(machine) for name, machine in nodes.items()}
    try:
        for user in ({}, {"ansible_user": "ada"}):
            done, seen = look(**user)
            assert done.returncode == 0, done.stdout
            for name in NODES[:2]:
                (holder,) = by_name(seen)[name]["holders"]
                assert (holder["what"], holder["launch_id"], holder["user"]) == ("launch", drill.launch_id, "muster")
                assert holder["own"] is False
                assert holder["seconds"] > 0
            assert by_name(seen)["node3"]["holders"] == []
            assert f"launch {drill.launch_id} (muster) for " in done.stdout
            assert "3 of 3 nodes ready, 1 of them without a launch" in seen["sentence"]
        assert {name: times_of_sudo(machine) for name, machine in nodes.items()} == before
        assert processes(drill.launch_id)
    finally:
        for name in NODES:
            forget_launch_users(nodes[name])


def test_dead_and_quarantined_nodes_are_shown(
    look: Callable[..., tuple[Result, dict[str, Any]]], nodes: dict[str, Machine]
) -> None:
    out = {"cluster_quarantined": "{{ inventory_hostname == 'node2' }}"}
    nodes["node3"].podman("stop", "--time=0")
    try:
        began = time.monotonic()
        done, seen = look(status_wait=2, **out)
        seconds = time.monotonic() - began
        assert done.returncode == 0, done.stdout
        rows = by_name(seen)
        assert (rows["node1"]["state"], rows["node1"]["ranks"]) == ("ready", [0])
        assert (rows["node2"]["state"], rows["node2"]["ranks"]) == ("quarantined", [])
        assert (rows["node3"]["state"], rows["node3"]["ranks"]) == ("no answer", [1])
        assert rows["node3"]["looked"] is False
        assert "1 of 3 nodes ready (1 quarantined, 1 not responding)" in done.stdout
        assert seconds < PATIENCE
        gated, _ = look(status_wait=2, status_gate=True, **out)
        assert gated.returncode == 2
        assert "NOT READY: 1 of 3 nodes ready" in gated.stdout
    finally:
        nodes["node3"].podman("start")
        until(nodes["node3"].ssh_answers, PATIENCE, "node3 is back")
    gated, seen = look(status_gate=True, **out)
    assert gated.returncode == 0, gated.stdout
    assert seen["ready"] is True


def test_watch_redraws_the_terminal_until_ctrl_c(nodes: dict[str, Machine], tmp_path: Path) -> None:
    request = {"watch": True, "watch_seconds": 1, "status_wait": 20}
    watched = Drill(tmp_path, request, playbook="playbooks/status.yml")
    process = watched.begin_in_terminal()
    until(lambda: watched.shown.count(HOME) >= 3 or process.poll() is not None, PATIENCE, "three screens")
    assert process.poll() is None, watched.shown.decode(errors="replace")
    os.write(watched.terminal, b"\x03")
    assert process.wait(PATIENCE) == 0, watched.shown.decode(errors="replace")
    until(lambda: b"no smoke run yet" in watched.shown, PATIENCE, "the last line")
    assert watched.shown.count(b"\x1b[2J") == 1  # cleared once, then overwritten
    assert watched.shown.rfind(b"\x1b[?25h") > watched.shown.rfind(HOME)  # the cursor is visible again
    assert b"interrupted" not in watched.shown


def test_watch_through_a_pipe_prints_json_lines(nodes: dict[str, Machine], tmp_path: Path) -> None:
    known = {"cluster_artifacts_dir": str(tmp_path), "watch": True, "watch_seconds": 1, "status_json": "-"}
    argv = command(**known)
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        rest, aside = process.stdout.read(), process.stderr.read()
    assert process.returncode == 0, aside
    assert [one["schema"] for one in (*seen, *map(json.loads, rest.splitlines()))][:2] == [1, 1]
    assert "nodes ready" in aside
