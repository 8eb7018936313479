"""Inject and prove faults in launches on three nodes, and rate each diagnosis by its cause and place.

script/test campaign runs all rows. The result of a row is kept in artifacts/campaign, and the row is skipped until its
file is removed. script/test without a stage runs only the rows with in_ci.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from judged import HONEST, MISSED, RIGHT, judge
from launch_users import make_launch_user
from paths import ROOT
from rows import ROWS
from scene import NODES, Scene
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine
    from row import Row

KEPT = ROOT / "artifacts/campaign"
USER = "ada"  # the user of user launches (no root)


@pytest.fixture(scope="module")
def launch_user(three_nodes: dict[str, Machine]) -> str:
    make_launch_user(USER, three_nodes.values())
    return USER


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path, three_nodes: dict[str, Machine]) -> Iterator[Scene]:
    row: Row = request.getfixturevalue("row")
    if kept_as(row).exists() and request.config.getoption("--resume"):
        pytest.skip("already rated")
    user = request.getfixturevalue("launch_user") if row.own else ""
    scene = Scene(tmp_path, dict(row.variables), user=user, machines=three_nodes)
    yield scene
    if row.undo:
        row.undo(scene)
    if scene.frozen:
        until(lambda: not scene.runs(), PATIENCE, "nothing of the launch is left")
    scene.clean_up(three_nodes.values())


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.id, marks=[] if row.in_ci else [pytest.mark.campaign]) for row in ROWS],
)
def test_fault_is_diagnosed(row: Row, scene: Scene) -> None:
    began = time.time()
    with row.before(scene):
        scene.begin(*row.arguments)
        if row.gates or row.strike:
            scene.in_step(len(NODES))
        if row.strike and row.proof:
            scene.fault(lambda: row.strike and row.strike(scene), lambda: row.proof and row.proof(scene))
        for name in row.gates:
            scene.open_gate(scene.machines[name])
        scene.wait(300)
    verdict = scene.verdict()
    word, said = judge(row, scene.diagnosis())
    keep(kept_as(row), row, scene, verdict, word, said, time.time() - began)
    assert verdict["status"] == "failed", verdict
    assert word in (RIGHT, HONEST) or (row.missed and word == MISSED), (said, scene.diagnosis())
    assert scene.frozen or not scene.runs()  # a frozen launch ends by its lease once it is thawed


def kept_as(row: Row) -> Path:
    return KEPT / f"{row.id}.json"


def keep(path: Path, row: Row, scene: Scene, verdict: dict[str, Any], word: str, said: str, seconds: float) -> None:
    """Write the result of the row immediately, so that a failure of a later row does not discard it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = scene.diagnosis() or {}
    proofs = [proof for cause in found.get("causes", []) for proof in cause["proofs"]]
    path.write_text(
        json.dumps(
            {
                "id": row.id,
                "fault": row.fault,
                "twin": row.twin,
                "own": row.own,
                "printed": scene.printed(),
                "judged": word,
                "said": said,
                "proof": proofs[0]["text"] if proofs else "",
                "lines": found.get("lines", []),
                "summary": verdict["summary"],
                "seconds": round(seconds, 1),
            },
            indent=1,
        )
    )
