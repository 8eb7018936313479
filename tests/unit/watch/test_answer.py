"""The answer of a node's own check: owner, reason and exit status, and which form is due."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cases import cases
from muster.verdict.finding import Finding, add_up
from muster.watch.answer import MISSED, answer, due, outdated

NOW = 1_795_000_000.0


@cases(__file__, "answer")
def test_answer_matches_the_case(case: dict[str, Any]) -> None:
    findings = []
    for line in case["findings"]:
        head, _, summary = line.replace("{long}", "x" * 500).partition(": ")
        status, name = head.split()
        findings.append(Finding(name, status, "node1", summary))
    given = answer(add_up(findings), node="node1", form="short", when=NOW, seconds=1.234)
    wanted = case["answer"]
    assert (given.status, given.owner, given.exit_status, given.hard) == (
        wanted["status"],
        wanted["owner"],
        wanted["exit"],
        wanted["hard"],
    )
    if "reason" in wanted:
        assert given.reason == wanted["reason"]
    else:
        assert given.reason.startswith(wanted["starts"])
        assert len(given.reason) == wanted["length"]
        assert given.reason.isprintable()
    assert given.as_dict()["seconds"] == 1.23


@cases(__file__, "due")
def test_scheduled_form_matches_the_case(case: dict[str, Any]) -> None:
    last = {"when": NOW - case["last"]} if case["last"] else {}
    nightly = None if case["nightly"] is None else NOW - case["nightly"]
    found = due(last, nightly, busy=case["busy"], now=NOW, hour=case["hour"])
    assert (found.form, found.why) == (case["form"], case["why"])


@pytest.mark.parametrize(
    ("age", "why"),
    [
        (60, ""),
        (-60, ""),
        (MISSED * 900, ""),
        (MISSED * 900 + 60, "the last scheduled check is 46 min old"),
        (-MISSED * 900 - 60, "the last scheduled check is dated 46 min in the future"),
        (math.nan, "the last scheduled check is nan min old"),
    ],
)
def test_results_become_outdated(age: float, why: str) -> None:
    assert outdated({"when": NOW - age}, 300, NOW) == why


def test_a_node_without_a_result_is_not_up_to_date() -> None:
    assert outdated({}, 300, NOW) == "no scheduled check has run"
