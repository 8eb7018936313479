"""Who hands content to whom.

cases/rounds: who has it, and who lacks it -> who serves whom, round after round.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.distribution import answers, rounds


@cases(__file__, "rounds")
def test_rounds(case: dict[str, Any]) -> None:
    having, lacking, found = list(case["having"]), list(case["lacking"]), []
    for _ in case["rounds"]:
        served = rounds.next_round(having, lacking, case.get("tried", {}))
        found.append(served)
        done = [name for names in served.values() for name in names]
        having, lacking = having + done, [name for name in lacking if name not in done]
    assert found == case["rounds"]


def test_sixty_four_nodes_take_three_rounds() -> None:
    having, lacking, count = ["0"], [str(number) for number in range(1, 64)], 0
    while lacking:
        served = rounds.next_round(having, lacking, {})
        assert max(map(len, served.values())) <= rounds.AT_ONCE
        having += [name for names in served.values() for name in names]
        lacking = [name for name in lacking if name not in having]
        count += 1
    assert count == 3


def test_the_controller_sends_to_the_node_that_lacks_least() -> None:
    assert rounds.seed({"a": 10, "b": 3, "c": 3}) == "b"


def test_an_answer_of_a_node_is_read_for_its_shape() -> None:
    one = "a" * 64
    good = {"missing": [one], "room": 10, "port_free": True, "error": ""}
    assert answers.stored(good, {one}) == good
    for spoilt in (
        None,
        7,
        {**good, "missing": [one, one]},
        {**good, "missing": ["b" * 64]},
        {**good, "missing": "a"},
        {**good, "room": -1},
        {**good, "room": None},
        {**good, "error": 1},
    ):
        assert answers.stored(spoilt, {one})["error"] == answers.SHAPELESS
    assert answers.fetched({"missing": 0, "error": ""}) == ""
    assert answers.fetched({"missing": 1, "error": ""}) == answers.SHAPELESS
    assert answers.fetched({"missing": 1, "error": "late"}) == "late"
    assert answers.fetched("x") == answers.SHAPELESS
