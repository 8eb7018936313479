"""Site rules: all problems are reported at once, and valid rules work like built-in rules."""

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
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.model import CausePlace
from muster.diagnosis.site_reading import RuleFile, rules_of
from muster.verdict.commands import OnNode
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
            '  RuleFile "/srv/train.py", line 12, in <module>\n'
            "acme.storage.StorageError: lost storage3\n",
        }
    },
}


@pytest.fixture(scope="module")
def example() -> Rules:
    rules, problems = rules_of([RuleFile(EXAMPLE.name, yaml.safe_load(EXAMPLE.read_text()))])
    assert problems == []
    return rules


@cases(__file__, "site_rules")
def test_problems_in_site_rules_are_reported(case: dict[str, Any]) -> None:
    rules, problems = rules_of([RuleFile("rules.yml", case["given"])])
    assert [str(one) for one in problems] == case["problems"]
    assert rules == site_rules.Rules()


def said(rules: Rules, seen: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    _, after = site_rules.replayed(rules, case_of(seen).seen)
    return after.word, [(one.cause.id, one.place.node) for one in after.causes]


def command_of(rules: Rules, node: str) -> site_rules.SiteQuestion:
    return site_rules.SiteQuestion(node, rules.commands[0])


def asked_of(rules: Rules, seen: dict[str, Any]) -> list[site_rules.SiteQuestion]:
    case = rules.of(case_of(seen).seen)
    return site_rules.asked(rules, case, site_rules.open_questions(rules, case))


def test_commands_of_candidate_causes_are_requested(example: Rules) -> None:
    [asked] = asked_of(example, LOST)
    assert (asked.node, asked.command.argv) == ("node2", ("findmnt", "--noheadings", "/storage"))
    assert asked_of(example, {}) == []
    answers = site_rules.Answers()
    answers.take(asked, 0, "/storage", "")
    assert asked_of(example, {**LOST, "ran": answers.ran}) == []


def with_answer(rules: Rules, code: int | None, output: str = "", why: str = "") -> dict[str, Any]:
    """Return the case with the given answer of the command on node2."""
    answers = site_rules.Answers()
    answers.take(command_of(rules, "node2"), code, output, why)
    return {**LOST, "findings": answers.findings, "ran": answers.ran, "unanswered": answers.unanswered}


def test_command_output_confirms_the_example_cause(example: Rules) -> None:
    assert said(example, with_answer(example, 1)) == ("confirmed", [("site.storage", "node2")])


def test_negative_answer_of_a_command_rules_out_its_cause(example: Rules) -> None:
    seen = with_answer(example, 0, "/storage")
    assert seen["findings"] == []
    assert said(example, seen) == ("likely", [("process.exception", "node2")])


@pytest.mark.parametrize(("code", "why"), [(None, "findmnt did not answer within 5 s"), (127, "it is not there")])
def test_command_that_did_not_run_counts_as_not_checked(example: Rules, code: int | None, why: str) -> None:
    seen = with_answer(example, code, why=why)
    assert (seen["findings"], seen["ran"]) == ([], {})
    case = example.of(case_of(seen).seen)
    decided = decide(case, example.all_causes)
    assert "site.storage" not in {one.cause.id for one in (*decided.causes, *decided.ruled_out)}
    [question] = [one for cause in example.causes for one in cause.confirm]
    answer = question.look(case, CausePlace("node2"))
    assert (answer.word, answer.text) == ("not looked", f"node2: {why}")


def test_disabled_command_counts_as_not_checked_and_is_shown(example: Rules) -> None:
    [question] = [one for cause in example.causes for one in cause.confirm]
    answer = question.look(example.of(case_of(LOST).seen), CausePlace("node2"))
    assert (answer.word, "diagnose_rules_commands" in answer.text) == ("not looked", True)
    assert isinstance(question.command, OnNode)
    assert question.command.filled({"node": "node2"}).endswith("-a 'findmnt --noheadings /storage'")


def test_command_runs_on_all_nodes_if_the_place_has_no_node(example: Rules) -> None:
    [question] = [one for cause in example.causes for one in cause.confirm]
    seen = with_answer(example, 0)
    assert question.look(example.of(case_of(seen).seen), CausePlace()).word == "not looked"
    ran = {name: ["site.storage_not_mounted"] for name in ("node1", "node2", "node3")}
    assert question.look(example.of(case_of({**seen, "ran": ran}).seen), CausePlace()).word == "no"
    assert question.look(example.of(case_of(with_answer(example, 1)).seen), CausePlace()).word == "yes"


def test_duplicate_ids_are_reported_with_line_numbers() -> None:
    text = {"id": "site.gone", "pattern": "gone", "means": "it is gone", "example": "gone"}
    lines: dict[tuple[str | int, ...], int] = {("texts",): 1, ("texts", 1): 2, ("texts", 1, "id"): 3}
    again = RuleFile("b.yml", {"texts": [text, {**text, "id": "site.more", "victm": True}]}, lines)
    _, problems = rules_of([RuleFile("a.yml", {"texts": [text]}, lines), again])
    unknown, twice = (str(one) for one in problems)
    assert unknown == (
        "b.yml line 1, texts 2 (site.more): unknown key victm (did you mean victim?). Correct or remove it."
    )
    assert twice.startswith(
        "b.yml line 3, texts 1 (site.gone): duplicate id, also used in a.yml line 3, texts 1 (site.gone)"
    )


def test_site_rules_do_not_change_a_case_that_they_do_not_match(example: Rules) -> None:
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
def test_questions_of_site_rules_are_answered_from_collected_facts(path: str, test: dict[str, Any], word: str) -> None:
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
    assert facts.asks(path, test)(case, CausePlace("node1")).word == word


def test_site_rules_are_applied_to_recorded_launches(tmp_path: Path) -> None:
    kept = tmp_path / "evidence.json"
    found = {"id": "site.storage_not_mounted", "status": "warn", "node": "node2", "summary": "findmnt ended with 1"}
    seen = case_of({**LOST, "findings": [found], "ran": {"node2": ["site.storage_not_mounted"]}}).seen
    kept.write_text(json.dumps(seen))
    (tmp_path / "other.json").write_text("{}")
    command = [sys.executable, "script/replay_rules.py", str(EXAMPLE), str(kept), str(tmp_path / "other.json")]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    assert shown[1] == f"{kept}: was confirmed: process.exception node2; is confirmed: site.storage node2"
    assert shown[2] == f"{tmp_path}/other.json: not the evidence of a launch (KeyError)"
