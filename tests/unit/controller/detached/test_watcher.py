"""The watcher: what it is told as JSON, what it says while it goes from attempt to attempt, and what ends it.

The supervisor of an attempt is a stand-in here, which ends as it is told.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launch_shapes import a_node, a_settings, a_user_request
from muster.launch.endings import Ending
from muster.launch.failure import NodeReport
from muster.launch.outcome import LaunchRecord
from muster.launch.plan import LaunchRequest
from muster.launch.watch import Decision
from muster.launch.watched import MOST_SAID, MOST_TEXT
from muster.verdict.redaction import Redaction
from muster_controller.detached import watcher
from muster_controller.detached.watcher import BY_HAND, Here, Login, Watcher, settings_in, spec_of
from muster_controller.launch.project import Project
from muster_node.distribution.manifest import ManifestFile

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from muster_controller.launch.settings import Settings

FIRST = "20261123-085513-709e"
GIVEN = "tok-5f2c9a71e3b84d06"
NODES = [a_node(number) for number in (1, 2)]
REQUEST = a_user_request(
    "anna",
    launch_id=FIRST,
    script="/srv/train.py",
    restarts=2,
    time_limit=600,
    env={"MY_TOKEN": GIVEN},
    more={"watched": {"node": "node1", "launch_id": FIRST}},
)
SETTINGS = a_settings(
    options=replace(REQUEST.options, detached=True),
    cluster=REQUEST.cluster,
    script_name="train.py",
    script_body=b"\x00print()",
    begun_here=frozenset({FIRST}),
)
WAYS = {node.name: {"address": node.address, "interpreter": "/usr/bin/python3"} for node in NODES}


def told(**more: Any) -> dict[str, Any]:
    """What a watcher is told, as it comes out of its file."""
    spec = spec_of(REQUEST, NODES, replace(SETTINGS, **more), Redaction([GIVEN]), WAYS, "node1")
    found: dict[str, Any] = json.loads(json.dumps(spec))
    return found


def test_settings_come_out_as_they_went_in() -> None:
    assert settings_in(told(), REQUEST) == replace(SETTINGS, options=REQUEST.options)
    assert LaunchRequest.read(told()["request"]) == REQUEST
    files = (ManifestFile("a/b.py", True, 3, "0" * 64),)
    found = settings_in(told(project=Project("/home/anna/p", b"[]\n", files)), REQUEST).project
    assert found is not None
    assert (found.source, found.manifest, found.files) == ("/home/anna/p", b"[]\n", files)
    assert found.read(files[0], 0, 3) == b""


class Attempted:
    """The supervisor's stand-in. ends: of each attempt, the node that is lost, "" for none."""

    def __init__(self, folder: Path, ends: list[str]) -> None:
        self.folder = folder
        self.ends = ends
        self.settings: list[Settings] = []
        self.noted: list[dict[str, Any]] = []

    def __call__(self, plan: Any, _ways: Any, settings: Any, _logs: Any, say: Any, *, interruption: Any) -> Any:
        self.settings.append(settings)
        self.plan, self.say, self.interruption = plan, say, interruption
        self.messages = self
        return self

    def close(self) -> None:
        """Of the messages."""

    def launch(self) -> LaunchRecord:
        self.noted.append(json.loads((self.folder / "state.json").read_text()))
        self.on_running()
        self.say(f"the token is {GIVEN}")
        lost = self.ends.pop(0)
        reports = [NodeReport(name, last_answer=time.monotonic()) for name in self.plan.names]
        if lost == "stopped":
            os.kill(os.getpid(), signal.SIGTERM)
            return LaunchRecord(self.plan, self.interruption.decision(), [], reports)
        decision = Decision(Ending.NODE, "cut off", lost) if lost else Decision(Ending.FINISHED, "well")
        return LaunchRecord(self.plan, decision, [], reports, stop_began=time.monotonic())

    on_running: Any = None


class Fit:
    """Every node may take part in the next attempt."""

    own = True

    def ask(self, *_what: Any, **_how: Any) -> None:
        """Answered by gather."""

    def gather(self, verb: str, names: list[str], *_rest: Any) -> dict[str, Any]:
        self.between()
        fit: dict[str, Any] = {"running": [], "gpus": [], "gpu_error": "", "checkpoint": None}
        return {name: type("Answer", (), {"data": fit, "error": ""}) for name in names if verb == "fit"}

    def between(self) -> None:
        """Between two attempts."""

    def close(self) -> None:
        """Nothing is open."""


def watched(folder: Path, ends: list[str], monkeypatch: pytest.MonkeyPatch, nodes: Fit | None = None) -> Attempted:
    attempted = Attempted(folder, ends)
    monkeypatch.setattr(watcher, "Supervisor", attempted)
    one = Watcher(folder, told())
    monkeypatch.setattr(one.whole, "asked", nodes or Fit())
    one.run()
    return attempted


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return found


def test_each_attempt_is_said_before_it_begins_and_nothing_of_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempted = watched(tmp_path, ["node2", ""], monkeypatch)
    assert [len(noted["attempts"]) for noted in attempted.noted] == [1, 2]
    found = state(tmp_path)
    assert [one["number"] for one in found["attempts"]] == [1, 2]
    assert found["attempts"][0]["launch_id"] == FIRST
    assert found["running"] is True
    assert found["result"]["verdict"]["status"] == "degraded"
    assert [one["nodes"] for one in found["result"]["attempts"]] == [["node1", "node2"]] * 2
    assert GIVEN not in (tmp_path / "state.json").read_text()
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600
    first, second = attempted.settings
    assert (first.earlier, second.earlier) == ((), (FIRST,))
    assert first.options.time_limit >= second.options.time_limit > 0


def test_a_stop_is_somebodys_word_and_no_attempt_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(tmp_path, ["stopped"], monkeypatch)
    found = state(tmp_path)
    assert len(found["attempts"]) == 1
    assert BY_HAND in found["result"]["verdict"]["summary"]


class Stopped(Fit):
    def between(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_stop_between_two_attempts_lets_none_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(tmp_path, ["node2"], monkeypatch, Stopped())
    found = state(tmp_path)
    assert len(found["attempts"]) == 1
    assert BY_HAND in found["result"]["verdict"]["summary"]


def test_it_says_no_more_than_it_may_hold(tmp_path: Path) -> None:
    one = Watcher(tmp_path, told())
    for number in range(MOST_SAID + 7):
        one.say(f"{number}" + "x" * 10_000)
    found = state(tmp_path)
    assert (found["first"], len(found["said"])) == (7, MOST_SAID)
    assert max(map(len, found["said"])) == MOST_TEXT


def test_it_logs_in_on_all_nodes_but_its_own(tmp_path: Path) -> None:
    ways = Watcher(tmp_path, told()).ways
    assert ways["node1"] == Here("node1", "/usr/bin/python3")
    assert ways["node2"] == Login("node2", "10.0.0.2", "/usr/bin/python3", f"{tmp_path}/1")
