"""All seats on all nodes, or none: what the supervisor asks for, says and decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from answering_nodes import AnsweringNodes
from launch_shapes import a_plan, a_settings
from muster.launch.endings import Ending
from muster.launch.occupied import TAKEN
from muster.launch.preflight import GPUS, Prepared
from muster.launch.watch import Decision
from muster_controller.launch import reserving
from muster_controller.launch.reserving import Reserving
from muster_controller.playbook.interruption import Interruption

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = "20260101-120000-0002"
OLDER, YOUNGER = "20260101-120000-0001", "20260101-120000-0003"


def seen(launch_id: str | None, *, begun: bool = False, over: bool = False) -> Any:
    """What a node answers of the CPU slot: who has them."""
    holder = {"pid": 441, "name": "", "command": "", "user": "ada", "unit": "", "seconds": None, "detached": False}
    whose = {"manager_of": None, "ours": launch_id == OURS}
    held = [] if launch_id is None else [{**holder, **whose, "launch_id": launch_id, "begun": begun}]
    return {"held": {"cpu": held}, "over": over}


class Reserve:
    """A launch on two nodes: node1 is ours all the time, and node2 answers one after the other."""

    def __init__(self, *of_node2: Any, **settings: Any) -> None:
        answers = {("node1", "reserve"): [seen(OURS)] * 9, ("node2", "reserve"): list(of_node2)}
        self.nodes = AnsweringNodes(answers)
        self.said: list[str] = []
        self.interruption = Interruption()
        self.reserving = Reserving(OURS, a_settings(**settings), self.nodes, self.said.append, self.interruption)

    def __call__(self, of_node2: Any) -> Decision | None:
        return self.reserving.reserve({"node1": seen(OURS), "node2": of_node2})

    @property
    def asked(self) -> list[bool]:
        return [payload["take"] for node, verb, payload in self.nodes.asked if (node, verb) == ("node2", "reserve")]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserving, "PAUSE", 0.0)


def test_what_is_ours_at_once_costs_no_further_message() -> None:
    reserve = Reserve()
    assert reserve(seen(OURS)) is None
    assert reserve.nodes.asked == []


def test_a_unit_that_is_not_up_yet_is_waited_for() -> None:
    reserve = Reserve(seen(None), seen(OURS))
    assert reserve(seen(None)) is None
    assert reserve.asked == [True, True]


def test_a_younger_one_that_has_not_begun_gives_way() -> None:
    reserve = Reserve(seen(YOUNGER), seen(OURS))
    assert reserve(seen(YOUNGER)) is None


@pytest.mark.parametrize(("launch_id", "begun"), [(OLDER, False), (YOUNGER, True), ("", False)])
def test_whoever_has_a_better_right_is_named(launch_id: str, *, begun: bool) -> None:
    reserve = Reserve()
    decision = reserve(seen(launch_id, begun=begun))
    assert decision is not None
    assert (decision.ending, decision.node) == (Ending.TAKEN, "node2")
    (finding,) = reserve.reserving.findings
    assert (finding.node, finding.id, finding.status) == ("node2", "launch.taken", "fail")
    assert (launch_id or "PID 441") in finding.summary
    assert reserve.nodes.asked == []


def test_who_waits_lets_go_meanwhile_and_says_for_whom_once() -> None:
    busy = seen(OLDER, begun=True)
    reserve = Reserve(busy, busy, busy, seen(None), seen(OURS), wait=True)
    assert reserve(busy) is None
    assert reserve.asked == [False, False, False, False, True]
    assert reserve.said == [f"waiting: node2: launch {OLDER} of ada (PID 441) holds the CPU slot"]


def test_waiting_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve(wait=True, wait_timeout=0.001)
    monkeypatch.setattr(reserve.reserving, "until", 0.0)
    decision = reserve(seen(OLDER))
    assert decision is not None
    assert decision.ending is Ending.TAKEN


def test_ctrl_c_ends_it() -> None:
    reserve = Reserve(wait=True)
    reserve.interruption.signals = 1
    decision = reserve(seen(OLDER))
    assert decision is not None
    assert decision.ending is Ending.INTERRUPTED


def test_a_unit_that_has_ended_is_left_to_the_watch() -> None:
    assert Reserve()(seen(None, over=True)) is None


def test_a_node_that_no_longer_answers() -> None:
    decision = Reserve("no route to host")(seen(None))
    assert decision == Decision(Ending.NODE, "no route to host", "node2")


def test_nobody_tries_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserving, "TRIES_FOR", -1.0)
    decision = Reserve()(seen(None))
    assert decision is not None
    assert decision.ending is Ending.FAILED


def test_a_shared_launch_asks_nobody() -> None:
    reserve = Reserve(shared=True)
    assert reserve(None) is None
    assert reserve.nodes.asked == []


# ---------------------------------------------------------------- before the start


def looks(*findings: list[Any]) -> Callable[[], Prepared]:
    """One answer after the other."""
    answers = [Prepared(a_plan(), findings=list(found)) for found in findings]
    return lambda: answers.pop(0)


BUSY = TAKEN.fail("node2", "launch x has it", "Wait", observed="launch x")


def test_before_the_start_others_are_waited_for() -> None:
    reserve = Reserve(wait=True)
    prepared = reserve.reserving.prepared(looks([BUSY], [BUSY], []))
    assert not prepared.refused
    assert reserve.said == ["waiting: node2: launch x has it"]


def test_what_waiting_does_not_change_is_not_waited_for() -> None:
    reserve = Reserve(wait=True)
    assert reserve.reserving.prepared(looks([BUSY, GPUS.fail("node1", "none", "Look")])).refused
    assert reserve.said == []


def test_nobody_waits_unasked() -> None:
    assert Reserve().reserving.prepared(looks([BUSY])).refused
