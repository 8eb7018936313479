"""Sampling of ranks by the main process of a launch, with real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from muster.launch.answers import reader
from muster_node.diagnosis import sampling
from muster_node.tools import process
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def taken(folder: Path) -> dict[str, Any]:
    path = folder / "unit/samples.json"
    until(path.exists, PATIENCE, "a sample")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def rank(pid: int) -> dict[str, Any]:
    seen = process.status(pid)
    assert seen is not None
    return {"rank": 0, "local_rank": 0, "pid": pid, "started": seen.started, "gone_at": None}


def test_silent_rank_is_sampled_from_kernel_data(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    (tmp_path / "unit").mkdir()
    one = rank(sleeper.pid)
    waited = "voluntary_ctxt_switches:\t0\n"
    until(lambda: waited not in process.read(sleeper.pid, "status"), PATIENCE, "it has waited for something")
    sampling.Sampling(str(tmp_path), 3600.0).keep([one, {**one, "local_rank": 1, "gone_at": 5.0}])
    found = taken(tmp_path)
    assert [each["local_rank"] for each in found["ranks"]] == [0]
    assert (found["number"], found["ranks"][0]["stack"], found["ranks"][0]["sequence"]) == (1, [], None)
    assert found["ranks"][0]["switches"] > 0
    look: dict[str, Any] = {
        "unit": {},
        "result": None,
        "ranks": [],
        "errors": {},
        "notes": [],
        "logs": {},
        "disk": {"free": 1, "total": 2},
        "clock": 1.0,
        "samples": {**found, "age": time.monotonic() - found["at"]},
    }
    assert reader({"node1": [0]})("node1", "look", look)[0]["samples"]["ranks"] == found["ranks"]


def test_reused_pid_is_not_sampled(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    (tmp_path / "unit").mkdir()
    sampling.Sampling(str(tmp_path), 3600.0).keep([{**rank(sleeper.pid), "started": 1}])
    assert taken(tmp_path)["ranks"] == []


def test_disabled_sampling_writes_nothing(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    samples = sampling.Sampling(str(tmp_path), 0.0)
    samples.keep([rank(sleeper.pid)])
    assert samples.thread is None
