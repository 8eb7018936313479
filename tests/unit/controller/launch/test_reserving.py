"""Reservation of all GPU and CPU slots of a launch, or none: requests, messages and decisions."""

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
    """Return a node's answer about its CPU slot. launch_id: the launch that holds the slot, or None if it is free."""
    holder = {"pid": 441, "name": "", "command": "", "user": "ada", "unit": "", "seconds": None, "detached": False}
    whose = {"manager_of": None, "ours": launch_id == OURS}
    held = [] if launch_id is None else [{**holder, **whose, "launch_id": launch_id, "begun": begun}]
    return {"held": {"cpu": held}, "over": over}


class Reserve:
    """A launch on two nodes. node1 is already reserved; of_node2 are the successive answers of node2."""

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
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserving, "PAUSE", 0.0)


def test_successful_reservation_sends_no_further_requests() -> None:
    reserve = Reserve()
    assert reserve(seen(OURS)) is None
    assert reserve.nodes.asked == []


def test_reservation_waits_for_a_starting_unit() -> None:
    reserve = Reserve(seen(None), seen(OURS))
    assert reserve(seen(None)) is None
    assert reserve.asked == [True, True]


def test_younger_launch_that_has_not_started_releases_its_slots() -> None:
    reserve = Reserve(seen(YOUNGER), seen(OURS))
    assert reserve(seen(YOUNGER)) is None


@pytest.mark.parametrize(("launch_id", "begun"), [(OLDER, False), (YOUNGER, True), ("", False)])
def test_holder_with_priority_is_reported(launch_id: str, *, begun: bool) -> None:
    reserve = Reserve()
    decision = reserve(seen(launch_id, begun=begun))
    assert decision is not None
    assert (decision.ending, decision.node) == (Ending.TAKEN, "node2")
    (finding,) = reserve.reserving.findings
    assert (finding.node, finding.id, finding.status) == ("node2", "launch.taken", "fail")
    assert (launch_id or "PID 441") in finding.summary
    assert reserve.nodes.asked == []


def test_waiting_launch_holds_no_slots_and_reports_the_holder_once() -> None:
    busy = seen(OLDER, begun=True)
    reserve = Reserve(busy, busy, busy, seen(None), seen(OURS), wait=True)
    assert reserve(busy) is None
    assert reserve.asked == [False, False, False, False, True]
    assert reserve.said == [f"waiting: node2: launch {OLDER} of ada (PID 441) holds the CPU slot"]


def test_launch_stops_waiting_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve(wait=True, wait_timeout=0.001)
    monkeypatch.setattr(reserve.reserving, "until", 0.0)
    decision = reserve(seen(OLDER))
    assert decision is not None
    assert decision.ending is Ending.TAKEN


def test_launch_stops_waiting_when_interrupted() -> None:
    reserve = Reserve(wait=True)
    reserve.interruption.signals = 1
    decision = reserve(seen(OLDER))
    assert decision is not None
    assert decision.ending is Ending.INTERRUPTED


def test_unit_that_already_ended_does_not_make_the_reservation_fail() -> None:
    assert Reserve()(seen(None, over=True)) is None


def test_unreachable_node_ends_the_reservation() -> None:
    decision = Reserve("no route to host")(seen(None))
    assert decision == Decision(Ending.NODE, "no route to host", "node2")


def test_reservation_fails_after_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserving, "TRIES_FOR", -1.0)
    decision = Reserve()(seen(None))
    assert decision is not None
    assert decision.ending is Ending.FAILED


def test_shared_launch_reserves_no_slots() -> None:
    reserve = Reserve(shared=True)
    assert reserve(None) is None
    assert reserve.nodes.asked == []


# ---------------------------------------------------------------- before the start


def preflight(*findings: list[Any]) -> Callable[[], Prepared]:
    """Return a preflight check that returns the given findings in turn."""
    answers = [Prepared(a_plan(), findings=list(found)) for found in findings]
    return lambda: answers.pop(0)


BUSY = TAKEN.fail("node2", "launch x has it", "Wait", observed="launch x")


def test_launch_waits_for_busy_slots_before_its_start() -> None:
    reserve = Reserve(wait=True)
    prepared = reserve.reserving.prepared(preflight([BUSY], [BUSY], []))
    assert not prepared.refused
    assert reserve.said == ["waiting: node2: launch x has it"]


def test_launch_stops_waiting_if_there_are_other_problems() -> None:
    reserve = Reserve(wait=True)
    assert reserve.reserving.prepared(preflight([BUSY, GPUS.fail("node1", "none", "Look")])).refused
    assert reserve.said == []


def test_launch_does_not_wait_by_default() -> None:
    assert Reserve().reserving.prepared(preflight([BUSY])).refused
