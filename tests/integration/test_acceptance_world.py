"""The complete acceptance test on a healthy cluster, and acceptance launches that fail."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from machines import find_machine
from paths import ARTIFACTS
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from acceptance_runs import Run
    from machines import Machine

PATIENCE = 60.0


def test_healthy_cluster_passes_every_stage_of_quick_mode(smoke: Callable[..., Run]) -> None:
    result, measured, verdict = smoke()
    assert result.rc == 0, result.stdout
    assert verdict["status"] == "healthy", verdict["summary"]
    assert [one for one in verdict["findings"] if one["status"] != "pass"] == []
    stages = {name for rank in measured["ranks"] for name, report in rank["stages"].items() if report["status"] == "ok"}
    assert {"world", "device", "collectives", "bandwidth", "equality", "checkpoint", "precision", "train"} <= stages
    assert all(len(rank["stages"]) == len(measured["ranks"][0]["stages"]) for rank in measured["ranks"])
    said = {one["id"]: one["summary"] for one in verdict["findings"]}
    assert said["smoke.versions"].startswith("equal on all ranks: torch 2.")


def ranks(machine: Machine) -> list[str]:
    """Return the PIDs of the first process of each rank, which torchrun started. The workers are other processes."""
    ours, agents, workers = (
        machine.inside("pgrep", "--full", "--", pattern, check=False).stdout.split()
        for pattern in (r"acceptance\.pyz --judged", "torchrun", "--pipe=")
    )
    return [pid for pid in ours if pid not in (*agents, *workers)]


def test_killed_rank_is_reported_first_and_once(smoke: Callable[..., Run], tmp_path: Path) -> None:
    machine = find_machine("node2")
    killed: list[str] = []

    def kill() -> None:
        logs = tmp_path / ARTIFACTS.name
        until(
            lambda: any('"stage": "world"' in path.read_text() for path in logs.glob("*/logs/node2/rank*.stdout.log")),
            PATIENCE,
            "the first stage is reported",
        )
        killed.extend(ranks(machine)[:1])
        machine.inside("kill", "-9", *killed)

    killer = threading.Thread(target=kill)
    killer.start()
    result, measured, verdict = smoke("world,train", ddp_smoke_steps=100000)
    killer.join(PATIENCE)
    assert killed
    assert result.rc != 0
    assert verdict["status"] == "failed"
    last = verdict["summary"]
    assert last.startswith("node2: rank "), last
    assert "was killed by SIGKILL" in last
    assert "did not report" not in last
    assert {one["id"] for one in verdict["findings"]} >= {"launch.signal", "smoke.report", "smoke.machines"}
    assert all("world" in rank["stages"] for rank in measured["ranks"])
    assert ranks(machine) == []


def test_refused_launch_reports_no_stages(smoke: Callable[..., Run]) -> None:
    result, measured, verdict = smoke("world", cluster_work_root="/proc/none")
    assert result.rc != 0
    assert measured == {}
    assert "smoke." not in " ".join(one["id"] for one in verdict.get("findings", []))
    assert "did not report" not in result.stdout


def test_misspelt_stage_is_refused_before_any_node_is_changed(smoke: Callable[..., Run]) -> None:
    result, measured, _ = smoke("world,trian")
    assert result.rc != 0
    assert measured == {}
    assert "ddp_smoke_stages has 'trian', which is not one of world, " in result.stdout
    assert "did you mean train?" in result.stdout
    assert "Launch the acceptance test" not in result.stdout
