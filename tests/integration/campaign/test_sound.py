"""Launches without faults must not produce findings, even if their output looks suspicious."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from paths import ROOT
from scene import NODES, Scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine

KEPT = ROOT / "artifacts/campaign"


@dataclass(frozen=True)
class Sound:
    """launch: description for the table. arguments: options of faulty.py, which apply to all ranks."""

    id: str
    launch: str
    arguments: tuple[str, ...] = ()
    variables: dict[str, Any] = field(default_factory=dict)
    gates: tuple[str, ...] = ("node1",)


def on(*nodes: str) -> dict[str, Any]:
    return {"cluster_launch_nodes": list(nodes)}


FRIGHTENING = (
    "CUDA out of memory",
    "Traceback (most recent call last):",
    "Connection refused, errno: 111",
    "No space left on device",
    "NCCL WARN Xid 79",
    "Killed",
)
ROWS = (
    Sound("sound-three", "three nodes"),
    Sound("sound-two", "two nodes", variables=on("node1", "node2")),
    Sound("sound-one", "one node", variables=on("node2")),
    Sound("sound-six-ranks", "two ranks on each node", variables={"cluster_nproc_per_node": 2}),
    Sound("sound-other-head", "another head node", variables=on("node3", "node1")),
    Sound("sound-large", "40 MB summed in each step", ("--size=10000000", "--pause=0")),
    Sound("sound-fast", "steps without a pause", ("--pause=0",)),
    Sound("sound-slow", "steps of three seconds", ("--pause=3",)),
    Sound("sound-late", "a rank that starts 12 s late", ("--late=12",)),
    Sound("sound-silent", "40 s of computing without output", ("--silent=40",)),
    Sound("sound-uneven", "a rank that computes four times as long as the others", ("--longer=1",)),
    Sound("sound-workers", "data loaders with workers", ("--load",)),
    Sound("sound-warnings", "warnings of Python and of a data loader", ("--warn",)),
    *(
        Sound(f"sound-words-{number}", f'prints "{words}" in each step', (f"--words={words}",))
        for number, words in enumerate(FRIGHTENING)
    ),
    Sound("sound-caught", "exceptions that the script catches and prints", ("--catch",)),
    Sound("sound-own-hook", "a sitecustomize and an excepthook of the user", ("--hook",)),
    Sound("sound-stall", "a stall timeout that is not reached", variables={"launch_stall_timeout": 60}),
)


@pytest.fixture
def scene(tmp_path: Path, three_nodes: dict[str, Machine], row: Sound) -> Iterator[Scene]:
    scene = Scene(tmp_path, dict(row.variables), machines=three_nodes)
    yield scene
    for machine in three_nodes.values():
        machine.inside("rm", "--force", scene.gate)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id, marks=[pytest.mark.campaign]) for row in ROWS])
def test_sound_launch_has_no_findings(row: Sound, scene: Scene, request: pytest.FixtureRequest) -> None:
    path = KEPT / f"{row.id}.json"
    if path.exists() and request.config.getoption("--resume"):
        pytest.skip("already rated")
    began = time.time()
    nodes = row.variables.get("cluster_launch_nodes", NODES)
    scene.begin(*row.arguments)
    scene.in_step(len(nodes) * row.variables.get("cluster_nproc_per_node", 1))
    for name in nodes:
        scene.open_gate(scene.machines[name])
    scene.wait(300)
    verdict = scene.verdict()
    found = [one for one in verdict["findings"] if one["status"] != "pass"]
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = {
        "id": row.id,
        "launch": row.launch,
        "status": verdict["status"],
        "said": "; ".join(one["summary"] for one in found),
        "seconds": round(time.time() - began, 1),
    }
    path.write_text(json.dumps(kept, indent=1))
    assert verdict["status"] == "healthy", verdict
    assert found == []
    assert scene.diagnosis() is None
