"""A site's own rules: every mistake is named at once, and what is right decides like what is built in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cases import cases
from muster.diagnosis import facts, site_rules
from muster.diagnosis.case import Case
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.model import Place
from sparse import case_of

if TYPE_CHECKING:
    from muster.diagnosis.site_rules import Rules

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/diagnosis_rules.yml"
LOST = {
    "ranks_per_node": 1,
    "ranks": {
        1: {
            "code": 1,
            "gone_at": 150.0,
            "stderr": "Traceback (most recent call last):\n"
            '  File "/srv/train.py", line 12, in <module>\n'
            "acme.storage.StorageError: lost storage3\n",
        }
    },
}


@pytest.fixture(scope="module")
def example() -> Rules:
    rules, problems = site_rules.rules_of(yaml.safe_load(EXAMPLE.read_text()), EXAMPLE.name)
    assert problems == []
    return rules


@cases(__file__, "site_rules")
def test_problems(case: dict[str, Any]) -> None:
    rules, problems = site_rules.rules_of(case["given"], "rules.yml")
    assert [str(one) for one in problems] == case["problems"]
    assert rules == site_rules.Rules()


def said(rules: Rules, seen: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    _, after = site_rules.replayed(rules, case_of(seen).seen)
    return after.word, [(one.cause.id, one.place.node) for one in after.causes]


def test_the_example_decides_by_the_answer_of_its_command(example: Rules) -> None:
    asked = next(one for one in site_rules.asked(example, ["node2"]))
    assert asked.command.argv == ("findmnt", "--noheadings", "/storage")
    ran, found = site_rules.read_answer(asked, 1, "")
    seen = {**LOST, "findings": [found], "ran": {"node2": [ran]}}
    assert said(example, seen) == ("confirmed", [("site.storage", "node2")])


def test_a_command_that_says_no_rules_it_out(example: Rules) -> None:
    asked = site_rules.asked(example, ["node2"])[0]
    ran, found = site_rules.read_answer(asked, 0, "/storage")
    assert found is None
    assert said(example, {**LOST, "ran": {"node2": [ran]}}) == ("confirmed", [("process.exception", "node2")])


@pytest.mark.parametrize("code", [None, 127])
def test_a_command_that_did_not_run_is_not_looked(example: Rules, code: int | None) -> None:
    asked = site_rules.asked(example, ["node2"])[0]
    assert site_rules.read_answer(asked, code, "") == ("", None)
    decided = decide(Case(case_of(LOST).seen, example.texts), (*CAUSES, *example.causes))
    assert "site.storage" not in {one.cause.id for one in (*decided.causes, *decided.ruled_out)}


def test_without_the_rules_a_case_is_decided_as_before(example: Rules) -> None:
    before, _ = site_rules.replayed(example, case_of(LOST).seen)
    assert [one.cause.id for one in before.causes] == ["process.exception"]
    assert before == decide(case_of(LOST), CAUSES)


@pytest.mark.parametrize(
    ("path", "test", "word"),
    [
        ("record.unit.pids_refused", {"grew": 3}, "yes"),
        ("record.unit.pids_refused", {"grew": 4}, "no"),
        ("end.disks.*.free", {"below": 10}, "yes"),
        ("end.disks.0.free", {"above": 10}, "yes"),
        ("end.counters.conntrack.drop", {"is": 7}, "yes"),
        ("end.kernel.*.text", {"matches": "I/O error"}, "yes"),
        ("end.hostname", {"contains": "gpu"}, "no"),
        ("end.gpus.0.ecc", {"above": 0}, "not looked"),
        ("start.kernel.*.text", {"contains": "x"}, "not looked"),
        ("snapshot.frozen", {"is": True}, "not looked"),
    ],
)
def test_facts(path: str, test: dict[str, Any], word: str) -> None:
    disks = [
        {"use": use, "path": "/x", "type": "ext4", "free": free, "total": 9, "inodes_free": 1, "read_only": False}
        for use, free in (("work", 100), ("logs", 5))
    ]
    end = {
        "unit": {"pids_refused": 3},
        "disks": disks,
        "counters": {"conntrack.drop": 7},
        "kernel": [{"at": 1.0, "text": "sda: I/O error"}],
        "hostname": "node1",
    }
    case = case_of({"records": {"node1": {"start": {"unit": {}}, "end": end}}})
    assert facts.problem_of(path, test) is None
    assert facts.asks(path, test)(case, Place("node1")).word == word


def test_kept_launches_are_replayed(tmp_path: Path) -> None:
    kept = tmp_path / "evidence.json"
    found = {"id": "site.storage_not_mounted", "status": "warn", "node": "node2", "summary": "findmnt ended with 1"}
    seen = case_of({**LOST, "findings": [found], "ran": {"node2": ["site.storage_not_mounted"]}}).seen
    kept.write_text(json.dumps(seen))
    (tmp_path / "other.json").write_text("{}")
    command = [sys.executable, "script/replay_rules.py", str(EXAMPLE), str(kept), str(tmp_path / "other.json")]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    assert shown[1] == f"{kept}: was confirmed: process.exception node2; is confirmed: site.storage node2"
    assert shown[2] == f"{tmp_path}/other.json: is no evidence of a launch (KeyError)"
