"""Node answers for a diagnosis are untrusted: only parts with the declared shape are used."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from cases import cases
from muster.diagnosis.evidence import Agent, NodeRecord, Snapshot
from muster.verdict import reading

SHOT: dict[str, Any] = {
    "rank": 2,
    "local_rank": 0,
    "pid": 77,
    "state": "S",
    "wchan": "futex_wait_queue",
    "cpu": 1.5,
    "memory": 1000,
    "files": 20,
    "threads": 9,
    "stack": ["train.py:7 step"],
    "stack_why": "",
    "flight": {"group": "0", "enqueued": 3, "last": []},
    "flight_why": "",
    "sockets": [
        {
            "local": "192.0.2.1:1",
            "peer": "192.0.2.2:2",
            "state": "ESTABLISHED",
            "queued": 0,
            "retransmits": 0,
            "idle": None,
        }
    ],
    "said": None,
}
SNAPSHOT: dict[str, Any] = {
    "at": 5.0,
    "ranks": [SHOT],
    "left": [],
    "listeners": [],
    "half_open": [],
    "frozen": False,
    "unseen": {},
}
RECORD: dict[str, Any] = {
    "at": 5.0,
    "boot_id": "b",
    "hostname": "node1",
    "interfaces": {
        "eth0": {
            "up": True,
            "carrier": None,
            "mtu": 1500,
            "kind": "physical",
            "addresses": ["192.0.2.1"],
            "counters": {"rx_errors": 0},
        }
    },
    "routes": {"node2": {"interface": "eth0", "source": "192.0.2.1", "gateway": "", "error": ""}},
    "names": {"node1": ["192.0.2.1"]},
    "program": None,
    "limits": {"max_open_files": [1024, None]},
    "counters": {"tcp.RetransSegs": 4},
    "unit": None,
    "pressure": {"cpu": 0.5},
    "memory": {"total": 2**40},
    "disks": [],
    "kernel": None,
    "gpus": None,
    "fabric": {},
    "left": [],
    "unseen": {"kernel": "requires root"},
}
GIVEN: dict[str, tuple[type[Any], dict[str, Any]]] = {"record": (NodeRecord, RECORD), "snapshot": (Snapshot, SNAPSHOT)}
INFINITE = json.loads("1e999")


@pytest.mark.parametrize("of", GIVEN)
def test_valid_answer_is_unchanged(of: str) -> None:
    shape, given = GIVEN[of]
    assert reading.read(shape, json.loads(json.dumps(given))) == (given, ())


@cases(__file__, "reading")
def test_hostile_answers_are_limited(case: dict[str, Any]) -> None:
    shape, whole = GIVEN[case["of"]]
    given = {**whole, **case.get("differing", {})}
    for name in case.get("without", ()):
        del given[name]
    if "error" in case:
        with pytest.raises(reading.UnusableError, match=f"^{re.escape(case['error'])}$"):
            reading.read(shape, given)
        return
    found, dropped = reading.read(shape, given)
    assert dropped == tuple(case["dropped"])
    assert found == {**whole, **case["shows"]}


@pytest.mark.parametrize("given", [None, [], "x", 7])
def test_answer_that_is_not_an_object_is_rejected(given: Any) -> None:
    with pytest.raises(reading.UnusableError):
        reading.read(Snapshot, given)


@pytest.mark.parametrize("number", [INFINITE, -INFINITE, float("nan"), 2**64, True, "7", None, [7]])
def test_rank_with_invalid_cpu_time_is_dropped(number: Any) -> None:
    found, dropped = reading.read(Snapshot, {**SNAPSHOT, "ranks": [{**SHOT, "cpu": number}, SHOT]})
    assert (found["ranks"], dropped) == ([SHOT], ("ranks",))
    assert found["unseen"] == {"ranks": reading.NO_USE}


def test_sizes_of_answers_are_limited() -> None:
    many = [{**SHOT, "stack": ["x" * 10_000] * 100} for _ in range(1000)]
    found, dropped = reading.read(Snapshot, {**SNAPSHOT, "ranks": many})
    assert dropped == ("ranks",)
    assert {len(frame) for shot in found["ranks"] for frame in shot["stack"]} == {reading.MOST_TEXT}
    assert len(json.dumps(found)) < 2 * reading.MOST_PART
    names = {f"{number}" * 200: 1 for number in range(10, 90)}
    assert {len(name) for name in reading.read(NodeRecord, {**RECORD, "counters": names})[0]["counters"]} == {128}


def test_deeply_nested_value_in_place_of_a_text_is_dropped() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    found, dropped = reading.read(NodeRecord, {**RECORD, "hostname": deep, "fabric": {"mlx5_0/1": deep}})
    assert (found["hostname"], found["fabric"], dropped) == ("", {}, ("hostname", "fabric"))


def test_agents_are_read_as_a_list() -> None:
    agent = {
        "pid": 5,
        "user": "ada",
        "argv": ["torchrun"],
        "cwd": "/",
        "started": 1.0,
        "state": "S",
        "environment": {},
        "ranks": [SHOT],
        "unit": "",
    }
    assert reading.read_all(Agent, [agent, {**agent, "pid": "5"}]) == ([agent], False)
    assert reading.read_all(Agent, [agent]) == ([agent], True)
    assert reading.read_all(Agent, "agents") == ([], False)
