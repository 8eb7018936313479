"""The schedule in which pairs of nodes are measured."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from payload_parts import part

meetings = part("meetings")


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9])
def test_each_pair_is_measured_without_using_a_node_twice_at_once(count: int) -> None:
    found = meetings.rounds(count)
    assert sorted(chain(*found)) == sorted(combinations(range(count), 2)) or len(found) == meetings.MOST_ROUNDS
    assert all(len(set(chain(*each))) == 2 * len(each) for each in found)


def test_number_of_rounds_is_limited() -> None:
    found = meetings.rounds(200)
    assert len(found) == meetings.MOST_ROUNDS
    assert len(set(chain(*found))) == 100 * meetings.MOST_ROUNDS
    assert not any(meetings.rounds(1))


def test_one_slow_node_of_three_does_not_lower_the_usual_rate() -> None:
    assert meetings.usual_of({(0, 1): 0.01, (0, 2): 1.0, (1, 2): 0.02}) == 1.0
    assert meetings.usual_of({}) == 0.0
