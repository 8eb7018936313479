"""Status checks of all nodes: in parallel, with a time limit for silent nodes, and with root only where required."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

from muster_controller.playbook.node_error import NodeError
from muster_controller.status.status_looks import Looks

if TYPE_CHECKING:
    from collections.abc import Callable

LAUNCH = "20261118-090640-1df3"
QUIET: dict[str, Any] = {"who": {}, "gpus": [], "launches": [], "sees_all": True, "seats_seen": True, "clock": 0.0}
BUSY: dict[str, Any] = {
    **QUIET,
    "gpus": [{"index": "0"}],
    "launches": [{"launch_id": LAUNCH, "manager_of": None, "user": "muster", "began": True}],
    "seats_seen": False,
}


class Way:
    """Connection to a node. answers: returns the answer to (verb, whether root is used)."""

    def __init__(self, name: str, answers: Callable[[str, bool], dict[str, Any]]) -> None:
        self.name = name
        self.answers = answers
        self.asked: list[tuple[str, bool]] = []

    def python(self, arguments: str, _text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        verb = arguments.rpartition(" ")[2]
        self.asked.append((verb, privileged))
        return 0, json.dumps(self.answers(verb, privileged)), ""

    def beside(self) -> Way:
        return self


def looks(*ways: Way, patience: float = 0.3) -> Looks:
    return Looks({way.name: way for way in ways}, {way.name: {} for way in ways}, patience)


def test_status_needs_one_round_trip_without_root() -> None:
    ways = [Way(name, lambda *_: QUIET) for name in ("a", "b")]
    found = looks(*ways).round()
    assert set(found.answers) == {"a", "b"}
    assert (found.silent, found.not_root) == ({}, {})
    assert [way.asked for way in ways] == [[("look", False)]] * 2


def test_silent_node_times_out_and_is_not_asked_again() -> None:
    held = threading.Event()

    def hangs(*_: Any) -> dict[str, Any]:
        held.wait(30)
        return QUIET

    silent = Way("b", hangs)
    asking = looks(Way("a", lambda *_: QUIET), silent)
    began = time.monotonic()
    found = asking.round()
    assert time.monotonic() - began < 10  # even on a busy machine
    assert (set(found.answers), set(found.silent)) == ({"a"}, {"b"})
    assert found.silent["b"].startswith("no response within ")
    asking.round()
    assert silent.asked == [("look", False)]
    held.set()


def test_unreachable_node_is_reported_with_its_reason() -> None:
    def refuses(*_: Any) -> dict[str, Any]:
        raise NodeError("ssh: No route to host", reachable=False)

    found = looks(Way("a", lambda *_: QUIET), Way("b", refuses)).round()
    assert found.silent == {"b": "ssh: No route to host"}


def test_root_is_used_only_for_gpu_slots_and_only_if_needed() -> None:
    seats = {"held": {"gpu-0": [[None, LAUNCH]]}, "seats_seen": True}
    way = Way("a", lambda verb, _: seats if verb == "seats" else BUSY)
    found = looks(way, patience=5.0).round()
    assert way.asked == [("look", False), ("seats", True)]
    assert found.answers["a"]["held"] == seats["held"]


def test_facts_that_need_no_root_are_shown_without_root() -> None:
    def no_root(_verb: str, privileged: bool) -> dict[str, Any]:
        if privileged:
            raise NodeError("sudo: a password is required", reachable=True)
        return BUSY

    found = looks(Way("a", no_root), patience=5.0).round()
    assert found.answers["a"]["gpus"] == BUSY["gpus"]
    assert found.not_root == {"a": "sudo requires a password"}


def test_root_is_never_requested_for_a_launch_user() -> None:
    way = Way("a", lambda *_: {**BUSY, "who": {"launch_user": True}})
    assert set(looks(way).round().answers) == {"a"}
    assert way.asked == [("look", False)]
