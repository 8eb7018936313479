"""Commands of site rules: on which nodes they run, and how their answers are parsed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from answering_nodes import AnsweringNodes
from muster.diagnosis.site_rules import Answers, Command, SiteQuestion
from muster_controller.diagnosis.site_questions import MOST_COMMANDS, MOST_NODES, SiteQuestions

MOUNTED = Command("site.absent", ("findmnt", "/storage"), 5.0, 1, "")
NODES = [f"node{number}" for number in range(1, 65)]


def answers(
    table: dict[tuple[str, str], list[Any]], *asked: SiteQuestion, lost: dict[str, str] | None = None
) -> Answers:
    messages = AnsweringNodes(table)
    questions = SiteQuestions(messages, NODES, "muster", lost or {})
    questions.ask(asked)
    assert {verb for _, verb, _ in messages.asked} <= {"commands"}
    assert len(messages.asked) <= MOST_NODES
    return questions.gather(time.monotonic() + 1, lambda: False)


def test_answer_becomes_a_finding() -> None:
    said = {"answers": {"site.absent": {"code": 1, "output": "\n\x1b[31mnot there\n", "why": ""}}}
    found = answers({("node1", "commands"): [said]}, SiteQuestion("node1", MOUNTED))
    assert found.ran == {"node1": ["site.absent"]}
    assert [one["summary"] for one in found.findings] == ["findmnt exited with code 1: not there"]
    assert found.unanswered == {}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("no route to host", "node1: no route to host"),
        ({"answers": None}, "node1: no response in time"),
        ({"answers": {"site.other": {}}}, "node1: no response in time"),
        ({"answers": {"site.absent": [1]}}, "node1: no response in time"),
        ({"answers": {"site.absent": {"code": "1", "output": ""}}}, "node1: invalid response"),
        (
            {"answers": {"site.absent": {"code": None, "output": "", "why": "findmnt did not answer within 5 s"}}},
            "node1: findmnt did not answer within 5 s",
        ),
        ({"answers": {"site.absent": {"code": 127, "output": "", "why": ""}}}, "node1: findmnt did not run"),
    ],
)
def test_invalid_answer_counts_as_not_checked(said: Any, why: str) -> None:
    found = answers({("node1", "commands"): [said]}, SiteQuestion("node1", MOUNTED))
    assert (found.findings, found.ran) == ([], {})
    assert found.unanswered == {"node1": {"site.absent": why}}


def test_limits_of_nodes_and_commands_are_reported() -> None:
    many = [MOUNTED._replace(question=f"site.q{number}") for number in range(MOST_COMMANDS + 1)]
    asked = [SiteQuestion(node, MOUNTED) for node in NODES]
    found = answers({}, *(SiteQuestion("node1", one) for one in many), *asked, lost={"node2": "it is down"})
    assert found.unanswered["node2"] == {"site.absent": "node2: not run: it is down"}
    assert "on at most 16 nodes" in found.unanswered["node64"]["site.absent"]
    assert "on at most 16 nodes" in found.unanswered["node1"][many[-1].question]
    assert set(found.unanswered) == set(NODES)
