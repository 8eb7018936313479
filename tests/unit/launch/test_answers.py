"""Node answers are untrusted input: data with a wrong type, or that does not match the plan, is rejected."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from cases import cases
from muster.launch.answers import reader
from muster.launch.failure import NodeReport, first_failure
from muster.launch.unit import UnitEnd
from muster.verdict.printable import ForeignText
from muster.verdict.reading import UnusableError

READ = reader({"node1": [0, 1], "node2": [2, 3]})
LOOK: dict[str, Any] = {
    "unit": {"LoadState": "loaded", "ActiveState": "active", "ExecMainStatus": "0"},
    "result": {"reason": "exit", "code": -9, "ended_at": 4.5, "error": "x"},
    "ranks": [
        {"rank": 2, "local_rank": 0, "pid": 7, "gone_at": None, "state": "S", "cpu": 1.5, "wchan": "futex"},
    ],
    "errors": {"0": {"message": {"extraInfo": {"py_callstack": "Traceback"}}}},
    "notes": [],
    "logs": {"agent": {"begin": 0, "gap": 0, "offset": 2, "text": "x\n", "more": True}},
    "disk": {"path": "/var", "free": 1, "total": 2, "inodes_free": None, "read_only": False},
    "clock": 1e9,
    "ending": None,
    "samples": None,
}
LAST = {
    "unit_before": {"ActiveState": "active", "ExecMainStatus": "0"},
    "error": "",
    "leftovers": [{"pid": 7}, 8],
    "clean": True,
    "record": None,
}


@cases(__file__, "answers")
def test_answers_are_validated_against_the_plan(case: dict[str, Any]) -> None:
    given = {**LOOK, **case["differing"]}
    if "error" in case:
        with pytest.raises(UnusableError, match=f"^{re.escape(case['error'])}$"):
            READ("node2", "look", given)
        return
    look, dropped = READ("node2", "look", given)
    assert dropped == tuple(case["dropped"])
    assert {**look, "notes": [one.line for one in look["notes"]]} == {**LOOK, **case["shows"]}


def test_last_of_several_answers_is_used() -> None:
    last, dropped = READ("node2", "stop", {**LOOK, **LAST})
    assert dropped == ()
    nobody = {"pid": None, "command": "", "user": "", "unit": ""}
    assert last == {**LOOK, **LAST, "error": ForeignText(""), "leftovers": [{**nobody, "pid": 7}, nobody]}


@pytest.mark.parametrize("verb", ["look", "stop", "logs", "identity", "start"])
@pytest.mark.parametrize("data", [None, [], "x", 7])
def test_answer_that_is_not_an_object_is_rejected(verb: str, data: Any) -> None:
    with pytest.raises(UnusableError):
        READ("node1", verb, data)


def test_corrupt_answers_raise_no_other_exception_than_unusable_error() -> None:
    """Answers are corrupted at random with a fixed seed. Those that are accepted can be evaluated."""
    dice = random.Random(3)
    unusable = 0
    for _ in range(3000):
        try:
            look, _ = READ("node2", "stop", corrupt({**LOOK, **LAST}, dice))
        except UnusableError:
            unusable += 1
            continue
        report = NodeReport(
            "node2", ended=look["result"], unit=UnitEnd.read(look["unit"]), ranks=look["ranks"], first_rank=2
        )
        report.errors, report.disk, report.agent_log = (
            look["errors"],
            look["disk"],
            "failed (exitcode: 1) local_rank: 0",
        )
        first_failure([report], 0.0)
    assert 0 < unusable < 2700


def corrupt(value: Any, dice: random.Random) -> Any:
    if dice.random() < 0.06:
        odd: list[Any] = [
            None,
            True,
            -1,
            10**400,
            1e400,
            float("nan"),
            "",
            "x\0\x1b[2J",
            "9" * 5000,
            [],
            [[]],
            {},
            {"a": {}},
        ]
        return dice.choice(odd)
    if isinstance(value, dict):
        return {key: corrupt(part, dice) for key, part in value.items() if dice.random() > 0.02}
    if isinstance(value, list):
        return [corrupt(part, dice) for part in value]
    return value
