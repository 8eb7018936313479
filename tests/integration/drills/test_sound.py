"""Undisturbed launches finish, can run concurrently, do not show their secrets, and leave nothing behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from drill import Drill, all_pids, processes, read_proc
from drill_ways import LIGHT, in_variants
from paths import ARTIFACTS

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine, Play

pytestmark = pytest.mark.moment


@in_variants(pipeline=LIGHT)
def test_sound_launch_finishes_and_leaves_nothing_behind(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    drill.begin("--steps=10")
    verdict = drill.end()
    assert verdict["status"] == "healthy", verdict
    assert [finding["status"] for finding in verdict["findings"]] == ["pass", "pass"]
    for rank in range(4):
        log = drill.run / f"logs/node{1 + rank // 2}/rank{rank}.stdout.log"
        assert log.read_text() == "".join(f"step {step}\n" for step in range(10))
    drill.check_nothing_left(*nodes)


def test_two_launches_run_side_by_side(tmp_path: Path, nodes: tuple[Machine, Machine]) -> None:
    drills = []
    for name, members in (("one", ["node1"]), ("other", ["node2", "node3"])):
        folder = tmp_path / name
        folder.mkdir()
        one = Drill(folder, {"cluster_launch_nodes": members, "cluster_nproc_per_node": 1})
        drills.append(one.begin())
    drills[0].in_step(1)
    drills[1].in_step(2)
    assert processes(drills[0].launch_id)  # both run at the same time
    assert processes(drills[1].launch_id)
    for one, machine in zip(drills, nodes, strict=True):
        one.open_gate(machine)
    # One may end while the other still uses its port.
    assert [one.end()["status"] for one in drills] == ["healthy", "healthy"]
    for one, machine in zip(drills, nodes, strict=True):
        one.check_nothing_left(*nodes)
        machine.inside("rm", one.gate)


@pytest.mark.slow
def test_limit_does_not_change_ranks_or_participants(play: Play, tmp_path: Path) -> None:
    """Two ranks run on node1, and one each on node3 and node2. --limit changes neither ranks nor participants."""
    result = play(
        "site.yml",
        tags="ddp_smoke",
        limit="node2",
        extravars={
            "cluster_nproc_per_node": "{{ 2 if inventory_hostname == 'node1' else 1 }}",
            "cluster_artifacts_dir": str(tmp_path),
            "ddp_smoke_stages": ["world", "collectives"],
        },
    )
    assert result.rc == 0, result.stdout
    run = (tmp_path / ARTIFACTS.name / "latest").resolve()
    plan = json.loads((run / "plan.json").read_text())
    assert [(entry["node"], entry["ranks"]) for entry in plan["nodes"]] == [
        ("node1", [0, 1]),
        ("node2", [2]),
        ("node3", [3]),
    ]
    smoke = json.loads((run / "smoke.json").read_text())
    assert [(one["hostname"], one["local_rank"]) for one in smoke["ranks"]] == [
        ("node1", 0),
        ("node1", 1),
        ("node2", 0),
        ("node3", 0),
    ]
    assert json.loads((run / "verdict.json").read_text())["status"] == "healthy"


@in_variants("administrators")
def test_secrets_are_not_shown(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    drill.variables["launch_env"] = {"HF_TOKEN": "hf-3141592653", "FLAVOUR": "vanilla-271828"}
    drill.begin().in_step()
    assert "HF_TOKEN=hf-3141592653" in read_proc(drill.pid(0), "environ").split("\0")
    assert not [pid for pid in all_pids() if "hf-3141592653" in read_proc(pid, "cmdline")]
    shown = drill.systemctl(nodes[0], "show", drill.unit()) + nodes[0].inside("journalctl", "--quiet").stdout
    assert "hf-3141592653" not in shown
    reading = f"cat {drill.state_on(nodes[0])}/spec.json"
    stranger = nodes[0].inside("su", "-s", "/bin/sh", "nobody", "-c", reading, check=False)
    assert "Permission denied" in stranger.stderr
    drill.open_gate(nodes[0])
    verdict = drill.end()
    assert verdict["status"] == "healthy", verdict
    drill.check_nothing_left(*nodes)
    played = drill.runner.stdout.read().encode()
    assert b"hf-3141592653" not in played
    plan = (drill.run / "plan.json").read_bytes()
    assert b"hf-3141592653" not in plan
    assert b"vanilla-271828" not in plan
