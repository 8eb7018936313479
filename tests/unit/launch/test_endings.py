"""The table of outcomes: every reason that a node can report has a row, and unknown reasons are reported."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from muster.launch import failure
from muster.launch.endings import NODE_WORDS, Ending
from muster.launch.failure import NodeReport
from muster_node.launch import ending
from paths import ROOT

if TYPE_CHECKING:
    from muster.launch.messages import Result

PROGRAM = ROOT / "plugins/module_utils/muster_node/launch/running.py"
LATER = 1000.0  # a stop after everything else


def test_node_program_and_table_have_the_same_reasons() -> None:
    said = {
        word.value
        for call in ast.walk(ast.parse(PROGRAM.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "write_result"
        for word in ast.walk(call.args[1])
        if isinstance(word, ast.Constant)
    }
    assert said | {ending.ASKED, ending.LIMIT} == set(NODE_WORDS)


def test_every_outcome_has_a_unique_id() -> None:
    assert len({one.check.id for one in Ending}) == len(Ending)


def test_outcome_ids_are_stable() -> None:
    ids = {Ending.LEASE: "launch.lease", Ending.FAILED: "launch.failed", Ending.INTERRUPTED: "launch.interrupted"}
    assert {one: one.check.id for one in ids} == ids


@pytest.mark.parametrize(
    ("ended", "expected", "summary"),
    [
        (
            {"reason": "lease"},
            Ending.LEASE,
            "the launch's lease expired: the controller stopped or lost its connection",
        ),
        ({"reason": "exec", "error": "no file"}, Ending.AGENT, "torchrun could not be started: no file"),
        ({"reason": "preempted"}, Ending.FAILED, "the node reports an unknown outcome: 'preempted'"),
        ({}, Ending.FAILED, "the node reports an unknown outcome: None"),
        ({"reason": "exit"}, Ending.AGENT, "torchrun exited with code None"),
    ],
)
def test_reported_reason_becomes_a_failure(ended: Result, expected: Ending, summary: str) -> None:
    cause, others = failure.first_failure([NodeReport("node1", ended=ended)], LATER)
    assert cause is not None
    assert (cause.ending, cause.summary, others) == (expected, summary, [])
