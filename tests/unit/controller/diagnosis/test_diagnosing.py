"""Diagnosis after a failed launch: evidence, checks, findings and artifacts. Node answers come from a table."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

from answering_nodes import AnsweringNodes
from launch_shapes import a_plan
from muster.diagnosis.launched import Gathered
from muster.diagnosis.site_reading import RuleFile, rules_of
from muster.launch import outcome
from muster.launch.endings import Decided, Ending
from muster.launch.failure import NodeReport
from muster.launch.outcome import LaunchRecord
from muster.launch.watch import Decision
from muster.verdict.redaction import Redaction
from muster_controller.artifacts.keeping import Keeping
from muster_controller.diagnosis.afterwards import Afterwards
from muster_controller.diagnosis.diagnosing import Diagnosing, failed
from muster_controller.diagnosis.rule_files import SiteRules

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from muster_controller.diagnosis.diagnosing import Diagnosed

GIVEN = "hf_oNeTwoThreeFour5"
PLAN = a_plan(2, entry={"interface": "eth0"})
RAISED = f'Traceback (most recent call last):\n  RuleFile "train.py", line 3, in main\nValueError: no {GIVEN}\n'
VICTIM = (
    'Traceback (most recent call last):\n  RuleFile "train.py", line 9, in main\n    dist.all_reduce(value)\n'
    "RuntimeError: [/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:3000\n"
)
EXITED = "failed (exitcode: 1) local_rank: 0 (pid: 7) of binary"


def record(*stderr: str) -> LaunchRecord:
    reports = [
        NodeReport(
            f"node{rank + 1}",
            first_rank=rank,
            last_answer=100.0 + rank,
            stderr={"0": text},
            agent_log=EXITED if text else "",
            ranks=[{"rank": rank, "local_rank": 0, "pid": 7, "gone_at": 99.0 - rank}],
        )
        for rank, text in enumerate(stderr)
    ]
    return LaunchRecord(
        PLAN, Decision(Ending.FAILED, "a rank failed", "node1"), reports=reports, began=10.0, stop_began=101.0
    )


def answering() -> AnsweringNodes:
    """Return nodes that listen but cannot connect to each other."""
    table: dict[tuple[str, str], list[Any]] = {}
    for name, peer, port in (("node1", "node2", 40002), ("node2", "node1", 40001)):
        own = {"node1": 40001, "node2": 40002}[name]
        ports = [29500, port] if peer == "node1" else [port]
        served: dict[str, Any] = {
            "pid": 7,
            "started": 9,
            "port": 29500 if name == "node1" else None,
            "holder": "",
            "ephemeral": [own],
            "interfaces": {},
        }
        calls = {str(one): {"error": "ETIMEDOUT", "seconds": 2.2, "greeting": None} for one in ports}
        link = {"ports": calls, "source": "10.0.0.9", "way": "eth0"}
        table |= {(name, "serve"): [served], (name, "links"): [{"links": {peer: link}}], (name, "end"): [{}]}
    return AnsweringNodes(table)


def diagnose(seen: LaunchRecord, folder: Path, messages: AnsweringNodes, said: list[str]) -> Diagnosed | None:
    supervisor: Any = SimpleNamespace(
        options=SimpleNamespace(rendezvous_timeout=120),
        evidence=SimpleNamespace(start={}, end={}, snapshots={}, key="00"),
        messages=messages,
    )
    redaction = Redaction([GIVEN])
    verdict = redaction.shape(outcome.judge(seen, "logs"))
    return Diagnosing(supervisor, redaction, said.append).diagnose(seen, verdict, folder, Keeping(said.append))


def test_failed_rank_is_reported_with_its_node_and_without_secrets(tmp_path: Path) -> None:
    said: list[str] = []
    found = diagnose(record(VICTIM, RAISED), tmp_path, answering(), said)
    assert found is not None, said
    assert (found.said["word"], found.said["lines"][1]) == ("confirmed", "Where: node2, rank 1")
    assert [(one["id"], one["node"]) for one in found.verdict["findings"] if one["id"] == "launch.cause"] == [
        ("launch.cause", "node2")
    ]
    assert found.verdict["summary"].startswith("node2: rank 1 (local rank 0) failed: ValueError")
    kept = {name: (tmp_path / name).read_text() for name in ("diagnosis.json", "evidence.json")}
    assert GIVEN not in "".join(kept.values())
    assert json.loads(kept["diagnosis.json"]) == found.said
    ends = json.loads(kept["evidence.json"])["ranks"]
    # Times of nodes are converted to the controller's wall clock.
    assert abs(ends[1]["gone_at"] - (time.time() - time.monotonic() + 98.0)) < 5


def test_ranks_that_only_lost_connections_do_not_blame_a_node(tmp_path: Path) -> None:
    said: list[str] = []
    found = diagnose(record(VICTIM, ""), tmp_path, AnsweringNodes({}), said)
    assert found is not None, said
    assert found.said["word"] == "unknown"
    assert not found.verdict["summary"].startswith(("node1", "node2"))
    [unknown] = [one for one in found.verdict["findings"] if one["id"] == "launch.cause.unknown"]
    assert (unknown["node"], unknown["status"]) == ("cluster", "unknown")


def test_failing_diagnosis_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("muster_controller.diagnosis.diagnosing.decide", broken)
    said: list[str] = []
    assert diagnose(record(VICTIM, RAISED), tmp_path, answering(), said) is None
    assert said == ["Could not diagnose the failed launch (RecursionError: too deep)"]


def test_only_launches_that_failed_are_diagnosed() -> None:
    diagnosed = {ending for ending in get_args(Decided) if failed(LaunchRecord(PLAN, Decision(ending, "")))}
    assert diagnosed == {Ending.FAILED, Ending.NODE, Ending.STALLED}
    assert not failed(LaunchRecord(PLAN, None))


# ---------------------------------------------------------------- checks after the failure


def looked(messages: AnsweringNodes, *, live: bool = False, lost: dict[str, str] | None = None) -> Gathered:
    gathered = Gathered()
    Afterwards(PLAN, ["node1", "node2"], messages, lambda: False, lost or {}).look(gathered, live=live)
    return gathered


def test_nodes_probe_each_other_again() -> None:
    gathered = looked(answering())
    assert {(one["id"], one["node"]) for one in gathered.findings} >= {("net.peer.dropped", "node1")}
    assert "net.master_port" in gathered.ran["node1"]


def test_port_in_use_by_ranks_is_not_probed() -> None:
    messages = answering()
    gathered = looked(messages, live=True)
    assert [payload["port"] for _, verb, payload in messages.asked if verb == "serve"] == [None, None]
    assert "net.ephemeral_ports" in gathered.ran["node1"]


def test_lost_node_is_probed_from_the_other_nodes() -> None:
    def calls(error: str) -> dict[str, Any]:
        ports = {port: {"error": error, "seconds": 2.2, "greeting": None} for port in ("22", "29500")}
        return {"links": {"node2": {"ports": ports, "source": "10.0.0.1", "way": "eth0"}}}

    for error, found in (("ETIMEDOUT", ["net.peer.dropped"]), ("ECONNREFUSED", [])):
        gathered = looked(AnsweringNodes({("node1", "links"): [calls(error)]}), lost={"node2": "timed out"})
        assert [one["id"] for one in gathered.findings] == found
        assert gathered.ran == {"node1": ["net.peer", "peer:node2"]}
        assert gathered.not_looked == {"node2": "timed out"}


def test_paths_are_checked_as_the_launch_user_on_every_node() -> None:
    def answers(*codes: int | None) -> dict[str, Any]:
        keys = [f"{flag}{number}" for number in (0, 1) for flag in "erw"]
        return {"answers": {key: {"code": code} for key, code in zip(keys, codes, strict=True)}}

    table = {("node1", "commands"): [answers(0, 0, 1, 1, 1, 1)], ("node2", "commands"): [answers(1, 1, 1, None, 1, 1)]}
    messages, gathered = AnsweringNodes(table), Gathered()
    looks = Afterwards(PLAN, ["node1", "node2"], messages, lambda: False, {})
    looks.paths(gathered, ["/data/a", "data/relative", "/data/a", "/data/b", "/data/\x1b[2J"])
    assert gathered.paths == {"node1": {"/data/a": "er", "/data/b": ""}, "node2": {"/data/a": ""}}
    [(_, _, asked), _] = messages.asked
    assert asked["user"] == PLAN.user
    assert asked["commands"]["w1"] == {"argv": ["test", "-w", "/data/b"], "seconds": 2.0}


def test_lost_node_is_asked_for_its_boot_until_it_responds() -> None:
    booting = "System is booting up. Unprivileged users are not permitted to log in yet."
    messages = AnsweringNodes({("node2", "identity"): [booting, {"uid": 0, "boot": "b 2"}]})
    gathered = looked(messages, lost={"node2": "timed out"})
    assert gathered.boots == {"node2": "b 2"}
    assert gathered.not_looked == {"node2": booting}


def test_silent_node_counts_as_not_checked() -> None:
    gathered = looked(AnsweringNodes({}), lost={"node2": "no route to host"})
    assert gathered.not_looked == {"node2": "no route to host"}
    silent = looked(AnsweringNodes({}))
    assert set(silent.not_looked) == {"node1", "node2"}
    assert silent.ran == {}


# ---------------------------------------------------------------- site rules

RULES = {
    "texts": [{"id": "site.lost", "pattern": "no hf_|no \\S+", "means": "it is lost", "example": "no x"}],
    "questions": [{"id": "site.gone", "asks": "is it gone from {node}?", "command": ["test", "-e", "/x"], "code": 1}],
    "causes": [
        {
            "id": "site.cause",
            "group": "resources",
            "scope": "node",
            "says": "it is gone from {node}",
            "fix": "Mount it",
            "symptoms": ["site.lost"],
            "confirm": ["site.gone"],
            "instead_of": ["process.exception"],
        }
    ],
}


def by_rules(folder: Path, said: list[str], *, commands: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    rules, problems = rules_of([RuleFile("rules.yml", RULES)])
    assert problems == []
    gone = {"answers": {"site.gone": {"code": 1, "output": f"no {GIVEN}", "why": ""}}}
    nodes = AnsweringNodes({("node2", "commands"): [gone]})
    monkeypatch.setattr(
        "muster_controller.diagnosis.diagnosing.Messages",
        lambda *_: SimpleNamespace(ask=nodes.ask, gather=nodes.gather, open=lambda: None, close=lambda: None),
    )
    supervisor: Any = SimpleNamespace(
        options=SimpleNamespace(rendezvous_timeout=120),
        evidence=SimpleNamespace(start={}, end={}, snapshots={}, key="00"),
        messages=answering(),
        snapshots=SimpleNamespace(connections={name: SimpleNamespace(beside=dict) for name in ("node1", "node2")}),
    )
    redaction, seen = Redaction([GIVEN]), record(VICTIM, RAISED)
    seen.plan = replace(PLAN, user="muster")
    verdict = redaction.shape(outcome.judge(seen, "logs"))
    diagnosing = Diagnosing(supervisor, redaction, said.append, SiteRules(rules, commands))
    found = diagnosing.diagnose(seen, verdict, folder, Keeping(said.append))
    assert found is not None, said
    return found, nodes.asked


def test_site_command_runs_on_the_node_with_the_symptom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = by_rules(tmp_path, [], commands=True, monkeypatch=monkeypatch)
    assert [(one["id"], one["node"]) for one in found.said["causes"]] == [("site.cause", "node2")]
    [(node, verb, payload)] = asked
    assert (node, verb, payload["user"]) == ("node2", "commands", "muster")
    assert payload["commands"] == {"site.gone": {"argv": ["test", "-e", "/x"], "seconds": 5.0}}
    kept = {name: (tmp_path / name).read_text() for name in ("diagnosis.json", "evidence.json")}
    assert GIVEN not in "".join(kept.values())


def test_site_command_does_not_run_if_not_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = by_rules(tmp_path, [], commands=False, monkeypatch=monkeypatch)
    candidates = [(one["id"], one["node"]) for one in found.said["candidates"]]
    assert (found.said["word"], candidates[0]) == ("unknown", ("site.cause", "node2"))
    assert asked == []
