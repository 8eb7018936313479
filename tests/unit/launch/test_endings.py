"""The table of endings: what a node can say has its row, and what it cannot say is named."""

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


def test_the_program_on_a_node_says_just_the_words_of_the_table() -> None:
    said = {
        word.value
        for call in ast.walk(ast.parse(PROGRAM.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "write_result"
        for word in ast.walk(call.args[1])
        if isinstance(word, ast.Constant)
    }
    assert said | {ending.ASKED, ending.LIMIT} == set(NODE_WORDS)


def test_every_ending_is_found_under_an_id_of_its_own() -> None:
    assert len({one.check.id for one in Ending}) == len(Ending)


def test_endings_that_a_verdict_names_by_their_ids() -> None:
    ids = {Ending.LEASE: "launch.lease", Ending.FAILED: "launch.failed", Ending.INTERRUPTED: "launch.interrupted"}
    assert {one: one.check.id for one in ids} == ids


@pytest.mark.parametrize(
    ("ended", "expected", "summary"),
    [
        ({"reason": "lease"}, Ending.LEASE, "nobody renewed the launch's lease: the controller was gone or cut off"),
        ({"reason": "exec", "error": "no file"}, Ending.AGENT, "torchrun could not be started: no file"),
        ({"reason": "preempted"}, Ending.FAILED, "the node reports an ending that is not known here: 'preempted'"),
        ({}, Ending.FAILED, "the node reports an ending that is not known here: None"),
        ({"reason": "exit"}, Ending.AGENT, "torchrun exited with code None"),
    ],
)
def test_what_a_node_says_is_named(ended: Result, expected: Ending, summary: str) -> None:
    cause, others = failure.first_failure([NodeReport("node1", ended=ended)], LATER)
    assert cause is not None
    assert (cause.ending, cause.summary, others) == (expected, summary, [])
