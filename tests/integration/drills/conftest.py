"""Fixtures for the drills, which test how a launch handles faults.

Each drill proves its fault, then checks that the verdict names the fault and that the launch leaves nothing behind.
Until the fault is injected, the launch keeps running (Drill.gate).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import brought
import standin_torchrun
from drill import LIGHT_PAYLOAD, Drill
from drill_ways import LIGHT, USER, WAYS
from launch_users import make_launch_user
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine


@pytest.fixture(scope="session", autouse=True)
def provisioned(with_pytorch: None) -> None:
    """Provide the training user and the environment."""


@pytest.fixture
def nodes(node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    return node("node1"), node("node2")


@pytest.fixture(scope="module")
def launch_user(node: Callable[[str], Machine]) -> None:
    make_launch_user(USER, [node("node1"), node("node2")])


@pytest.fixture
def drill(request: pytest.FixtureRequest, tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Drill]:
    """Yield a launch in one of the variants of drill_ways.py."""
    user, command = WAYS.get(request.param, ("", []))
    if user:
        request.getfixturevalue("launch_user")
    drill = Drill(tmp_path, user=user)
    if request.param == LIGHT:
        for machine in nodes:
            standin_torchrun.put(machine)
        drill.payload = LIGHT_PAYLOAD
        drill.variables.update(cluster_torchrun=standin_torchrun.TORCHRUN)
    if command:
        for machine in nodes:
            brought.install(machine)
        drill.variables.update(launch_command=command, cluster_torchrun=brought.TORCHRUN)
    yield drill
    drill.clean_up(nodes)


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Callable[[str, Drill, dict[str, Any]], None]:
    """Collect rows of the drill tables. drill_table.py writes them into docs/dev/drills.md."""
    path = ROOT / "artifacts/drills.json"

    def add(fault: str, drill: Drill, verdict: dict[str, Any]) -> None:
        path.parent.mkdir(exist_ok=True)
        rows = json.loads(path.read_text()) if path.exists() else {}
        rows.setdefault(fault, {})[request.node.callspec.params["drill"]] = {
            # There is no time to notice after ansible-playbook is gone.
            "noticed": round(drill.seconds_to_notice(), 1) if drill.thread else "-",
            "clean": round(drill.seconds_to_clean(), 1),
            "verdict": verdict["summary"].split(". Its log")[0],
        }
        path.write_text(json.dumps(rows, indent=1))

    return add
