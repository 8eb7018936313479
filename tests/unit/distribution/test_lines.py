"""Order of a distribution to many nodes, and validation of their answers.

cases/lines: nodes with complete and incomplete content -> the sources of each node in order of preference.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.distribution import answers
from muster.distribution.lines import HOLDERS, NEAREST, lines, seed


@cases(__file__, "lines")
def test_order_of_sources_matches_the_case(case: dict[str, Any]) -> None:
    assert lines(case["having"], case["lacking"]) == case["asks"]


@pytest.mark.parametrize("having", [1, 2, 5])
@pytest.mark.parametrize("lacking", [1, 2, 7, 63, 255])
def test_first_sources_are_not_shared_and_lines_have_no_cycles(having: int, lacking: int) -> None:
    holders, receivers = [f"h{number}" for number in range(having)], [f"t{number}" for number in range(lacking)]
    asks = lines(holders, receivers)
    assert list(asks) == receivers
    first = [sources[0] for sources in asks.values()]
    assert len(set(first)) == len(first)
    for name, sources in asks.items():
        assert len(set(sources)) == len(sources) <= NEAREST + HOLDERS
        assert set(sources) & set(holders), "somebody who has all of it can be asked in the end"
        assert all(source in holders or receivers.index(source) < receivers.index(name) for source in sources)


def test_seed_is_the_node_with_the_fewest_missing_bytes() -> None:
    assert seed({"a": 10, "b": 3, "c": 3}) == "b"


def test_stored_answer_is_validated() -> None:
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


def test_transfer_result_is_validated() -> None:
    names = {"192.0.2.1": "node1", "192.0.2.2": "node2"}
    good = {"missing": 0, "came": {"192.0.2.1": 3, "192.0.2.2": 9}, "error": ""}
    assert answers.shared(good, names) == {"came": ["node2", "node1"], "error": ""}
    assert answers.shared({**good, "missing": 2, "error": "late"}, names)["error"] == "late"
    shapeless: tuple[Any, ...] = (None, 7, [], {}, {**good, "missing": 1}, {**good, "error": None})
    for spoilt in shapeless:
        assert answers.shared(spoilt, names)["error"] == answers.SHAPELESS
    strange: tuple[Any, ...] = ({"192.0.2.9": 1}, {"192.0.2.1": "x"}, {str(number): 1 for number in range(9)}, 7)
    for spoilt in strange:
        assert answers.shared({**good, "came": spoilt}, names)["came"] == []


def test_answers_about_offered_and_stored_content_are_validated() -> None:
    digest = "a" * 64
    assert answers.offered({"pieces": [digest], "error": ""}) == [digest]
    assert answers.offered({"pieces": [], "error": "gone"}) == "gone"
    for spoilt in (None, {}, {"pieces": ["x"], "error": ""}, {"pieces": [digest] * 20_001, "error": ""}):
        assert answers.offered(spoilt) == answers.SHAPELESS
    good: dict[str, Any] = {"sizes": {"x.whl": 5}, "room": 9, "port_free": True, "error": ""}
    assert answers.kept(good, {"x.whl"}) == good
    for lacking in (None, {}, {**good, "sizes": {"y": 1}}, {**good, "sizes": {"x.whl": -1}}, {**good, "room": "1"}):
        found = answers.kept(lacking, {"x.whl"})
        assert (found["sizes"], found["error"]) == ({}, answers.SHAPELESS)
