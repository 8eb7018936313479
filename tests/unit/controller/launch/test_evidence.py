"""Evidence of a launch for its diagnosis: requests to nodes, validation, and storage on the controller."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from answering_nodes import AnsweringNodes
from launch_shapes import a_plan
from muster.launch.endings import Ending
from muster.launch.watch import Decision
from muster.verdict import reading
from muster.verdict.redaction import Redaction
from muster_controller.artifacts.keeping import Keeping
from muster_controller.launch import snapshots as asking
from muster_controller.launch.evidence import LaunchEvidence
from muster_controller.launch.kept_evidence import END, SNAPSHOT, START, path_of
from muster_controller.launch.logs import LogBook
from muster_controller.launch.snapshots import Snapshots

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODES = ("node1", "node2", "node3")
PLAN = a_plan(dict.fromkeys(NODES, 2))
RECORD: dict[str, Any] = {
    "at": 5.0,
    "boot_id": "b",
    "hostname": "node1",
    "interfaces": {},
    "routes": {},
    "names": {},
    "program": {
        "argv": ["torchrun", "--api-key=open-sesame", "see-the-vault"],
        "executable": "",
        "interpreter": "",
        "script": "",
        "cwd": "",
        "digests": {},
        "versions": {},
        "environment": {"TOKEN": "00"},
    },
    "limits": {},
    "counters": {},
    "unit": None,
    "pressure": {},
    "memory": {},
    "disks": [],
    "kernel": None,
    "gpus": None,
    "fabric": None,
    "left": [],
    "unseen": {},
}


def rank_entry(rank: int, local_rank: int) -> dict[str, Any]:
    numbers = {"rank": rank, "local_rank": local_rank, "pid": 7, "memory": 0, "files": 0, "threads": 1, "cpu": 0.0}
    texts = dict.fromkeys(("wchan", "stack_why", "flight_why"), "")
    return {**numbers, **texts, "state": "T", "stack": [], "flight": None, "sockets": [], "said": None}


def snapshot(*ranks: dict[str, Any]) -> dict[str, Any]:
    return {"at": 5.0, "ranks": list(ranks), "left": [], "listeners": [], "half_open": [], "frozen": None, "unseen": {}}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, said: list[str]) -> Callable[..., LaunchEvidence]:
    def one(launch_id: str = PLAN.launch_id) -> LaunchEvidence:
        folder = tmp_path / "lab" / launch_id
        logs = LogBook(folder, PLAN, lambda *_: None, Redaction(["see-the-vault"]), Keeping(said.append))
        return LaunchEvidence(replace(PLAN, launch_id=launch_id), logs, said.append)

    return one


def book(evidence: LaunchEvidence) -> LogBook:
    assert isinstance(evidence.logs, LogBook)
    return evidence.logs


def kept(evidence: LaunchEvidence, moment: str, node: str) -> Any:
    evidence.settle()
    book(evidence).keeping.finish()
    return json.loads(path_of(book(evidence).folder, moment, node).read_text())


def test_evidence_is_stored_without_secrets(make: Callable[..., LaunchEvidence]) -> None:
    evidence = make()
    evidence.take(START, "node1", RECORD)
    program = kept(evidence, START, "node1")["program"]
    assert program["argv"] == ["torchrun", "--api-key=********", "********"]
    assert evidence.start["node1"]["program"] == program
    assert path_of(book(evidence).folder, START, "node1").stat().st_mode & 0o777 == 0o600


def test_invalid_evidence_is_reported(make: Callable[..., LaunchEvidence], said: list[str]) -> None:
    evidence = make()
    evidence.take(START, "node1", None)
    evidence.take(END, "node1", {**RECORD, "routes": 7})
    evidence.take(END, "node2", "\x1b[2J")
    evidence.take(END, "node3", {"failed": "KeyError: 'x'\x1b[2J"})
    evidence.settle()
    assert (evidence.start, list(evidence.end)) == ({}, ["node1"])
    assert evidence.end["node1"]["unseen"] == {"routes": reading.NO_USE}
    assert said == [
        "node1: invalid parts of the evidence (end): routes",
        "node2: invalid evidence (end): expected an object, got '\\x1b[2J'",
        "node3: evidence (end) could not be recorded: KeyError: 'x'",
    ]


def test_ranks_that_belong_to_another_node_are_ignored(make: Callable[..., LaunchEvidence], said: list[str]) -> None:
    evidence = make()
    evidence.take(
        SNAPSHOT,
        "node2",
        snapshot(rank_entry(2, 0), rank_entry(2, 0), rank_entry(3, 0), rank_entry(0, 0), rank_entry(3, 1)),
    )
    evidence.settle()
    assert [one["rank"] for one in evidence.snapshots["node2"]["ranks"]] == [2, 3]
    assert said == ["node2: invalid parts of the evidence (snapshot): ranks that are not in the plan"]


def test_key_is_specific_to_the_launch_and_reproducible(make: Callable[..., LaunchEvidence], tmp_path: Path) -> None:
    first, again, other = make(), make(), make("20260101-120000-abce")
    assert first.key == again.key != other.key
    secret = tmp_path / "lab/evidence.key"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert first.key not in secret.read_text()
    assert not [
        path for path in (tmp_path / "lab").rglob("*") if path.is_file() and first.key in path.read_text("latin1")
    ]


def test_launch_without_a_stored_secret_uses_a_random_key(make: Callable[..., LaunchEvidence], tmp_path: Path) -> None:
    (tmp_path / "lab/evidence.key").mkdir(parents=True)
    assert make().key != make().key


def test_attached_controller_reads_stored_evidence(make: Callable[..., LaunchEvidence]) -> None:
    evidence = make()
    evidence.take(START, "node1", RECORD)
    evidence.take(START, "node2", RECORD)
    expected = {"node1": kept(evidence, START, "node1")}
    path_of(book(evidence).folder, START, "node2").write_text('{"at": ')
    book(evidence).close()
    again = make()
    again.recall(list(NODES))
    assert (again.start, again.end, again.snapshots) == (expected, {}, {})


def test_each_node_probes_the_head_node_and_the_next_nodes_first(
    make: Callable[..., LaunchEvidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster_controller.launch.evidence.MOST_PEERS", 2)
    evidence = make()
    nodes = [*PLAN.nodes, replace(PLAN.head, node="node4", node_rank=3)]
    plan = replace(PLAN, nodes=nodes)
    found = [list(evidence.request(plan, entry)["peers"]) for entry in nodes]
    assert found == [["node2", "node3"], ["node1", "node3"], ["node1", "node4"], ["node1", "node2"]]


# ---------------------------------------------------------------- snapshots


def asked(evidence: LaunchEvidence, table: dict[tuple[str, str], list[Any]], decision: Decision) -> list[str]:
    """Return the nodes that are queried after a decision, after processing their answers."""
    nodes = AnsweringNodes(table)
    snapshots = Snapshots({}, nodes, evidence)
    snapshots.messages = nodes
    snapshots.ask(PLAN, decision)
    snapshots.ask(PLAN, decision)
    snapshots.gather(lambda: False)
    evidence.settle()
    return [name for name, verb, _ in nodes.asked if verb == "snapshot"]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (Decision(Ending.FAILED, "a rank failed on node2", "node2"), list(NODES)),
        (Decision(Ending.STALLED, "no rank wrote a line"), list(NODES)),
        # node2 does not respond.
        (Decision(Ending.NODE, "no response", "node2"), ["node1", "node3"]),
        (Decision(Ending.FINISHED, "the launch succeeded on all nodes"), []),
        (Decision(Ending.INTERRUPTED, "Ctrl-C"), []),
        (Decision(Ending.DETACHED, "all ranks run"), []),
    ],
)
def test_decision_determines_which_nodes_are_queried(
    make: Callable[..., LaunchEvidence], decision: Decision, expected: list[str]
) -> None:
    evidence = make()
    table: dict[tuple[str, str], list[Any]] = {(name, "snapshot"): [snapshot()] for name in NODES}
    assert asked(evidence, table, decision) == expected
    assert list(evidence.snapshots) == expected
    assert evidence.silent == {}


def test_silent_nodes_are_listed_with_the_reason(
    make: Callable[..., LaunchEvidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "SECONDS", 0.2)
    evidence = make()
    table: dict[tuple[str, str], list[Any]] = {
        ("node1", "snapshot"): [snapshot(rank_entry(0, 0))],
        ("node2", "snapshot"): ["no route to host"],
    }
    asked(evidence, table, Decision(Ending.FAILED, "a rank failed on node1", "node1"))
    assert list(evidence.snapshots) == ["node1"]
    assert evidence.silent == {"node2": "no route to host", "node3": "no response within 0 s"}
