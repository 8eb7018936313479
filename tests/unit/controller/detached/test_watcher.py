"""The watcher: its JSON specification, its state file during the attempts, and how it is stopped.

The supervisor is a stub that returns the outcomes given by the test.
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


def spec_from_json(**more: Any) -> dict[str, Any]:
    """Return the specification of a watcher, as read from its file."""
    spec = spec_of(REQUEST, NODES, replace(SETTINGS, **more), Redaction([GIVEN]), WAYS, "node1")
    found: dict[str, Any] = json.loads(json.dumps(spec))
    return found


def test_settings_survive_the_round_trip_through_json() -> None:
    assert settings_in(spec_from_json(), REQUEST) == replace(SETTINGS, options=REQUEST.options)
    assert LaunchRequest.read(spec_from_json()["request"]) == REQUEST
    files = (ManifestFile("a/b.py", True, 3, "0" * 64),)
    found = settings_in(spec_from_json(project=Project("/home/anna/p", b"[]\n", files)), REQUEST).project
    assert found is not None
    assert (found.source, found.manifest, found.files) == ("/home/anna/p", b"[]\n", files)
    assert found.read(files[0], 0, 3) == b""


class SupervisorStub:
    """Stub of the supervisor. ends: the node that is lost in each attempt, or "" if none is."""

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
        """Close the messages: nothing to do."""

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


class FitNodes:
    """Nodes that are all available for the next attempt."""

    own = True

    def ask(self, *_what: Any, **_how: Any) -> None:
        """Do nothing: `gather` returns the answers."""

    def gather(self, verb: str, names: list[str], *_rest: Any) -> dict[str, Any]:
        self.between()
        fit: dict[str, Any] = {"running": [], "gpus": [], "gpu_error": "", "checkpoint": None}
        return {name: type("Answer", (), {"data": fit, "error": ""}) for name in names if verb == "fit"}

    def between(self) -> None:
        """Hook between two attempts."""

    def close(self) -> None:
        """Do nothing: no connection is open."""


def watched(
    folder: Path, ends: list[str], monkeypatch: pytest.MonkeyPatch, nodes: FitNodes | None = None
) -> SupervisorStub:
    attempted = SupervisorStub(folder, ends)
    monkeypatch.setattr(watcher, "Supervisor", attempted)
    one = Watcher(folder, spec_from_json())
    monkeypatch.setattr(one.whole, "asked", nodes or FitNodes())
    one.run()
    return attempted


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return found


def test_attempt_is_listed_before_it_starts_and_without_secrets(
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


def test_stop_by_a_user_prevents_further_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(tmp_path, ["stopped"], monkeypatch)
    found = state(tmp_path)
    assert len(found["attempts"]) == 1
    assert BY_HAND in found["result"]["verdict"]["summary"]


class StoppedBetween(FitNodes):
    def between(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_stop_between_attempts_prevents_the_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(tmp_path, ["node2"], monkeypatch, StoppedBetween())
    found = state(tmp_path)
    assert len(found["attempts"]) == 1
    assert BY_HAND in found["result"]["verdict"]["summary"]


def test_watcher_limits_the_number_and_length_of_its_messages(tmp_path: Path) -> None:
    one = Watcher(tmp_path, spec_from_json())
    for number in range(MOST_SAID + 7):
        one.say(f"{number}" + "x" * 10_000)
    found = state(tmp_path)
    assert (found["first"], len(found["said"])) == (7, MOST_SAID)
    assert max(map(len, found["said"])) == MOST_TEXT


def test_watcher_uses_ssh_only_for_other_nodes(tmp_path: Path) -> None:
    ways = Watcher(tmp_path, spec_from_json()).ways
    assert ways["node1"] == Here("node1", "/usr/bin/python3")
    assert ways["node2"] == Login("node2", "10.0.0.2", "/usr/bin/python3", f"{tmp_path}/1")
