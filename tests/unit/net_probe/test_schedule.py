"""Throughput measurements are scheduled so that each pair is measured once and no node twice at the same time."""

from __future__ import annotations

import itertools

import pytest

from muster.net_probe.blame import BlameShare, blame, couples
from muster.net_probe.schedule import ALL_PAIRS, SAMPLED_ROUNDS, again, calls, rounds


def names(count: int) -> list[str]:
    return [f"node{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 16, 33])
def test_every_pair_is_measured_once_and_no_node_twice_in_a_round(count: int) -> None:
    nodes = names(count)
    met = []
    for pairs in rounds(nodes):
        taking_part = [node for pair in pairs for node in pair]
        assert len(taking_part) == len(set(taking_part))
        met += [frozenset(pair) for pair in pairs]
    assert sorted(map(sorted, met)) == sorted(sorted(pair) for pair in itertools.combinations(nodes, 2))


@pytest.mark.parametrize("count", [2, 3, 8, ALL_PAIRS])
def test_every_pair_is_measured_for_up_to_sixteen_nodes(count: int) -> None:
    nodes = names(count)
    usable = set(itertools.permutations(nodes, 2))
    called = calls(nodes, usable)
    assert sum(map(len, called.values())) == count * (count - 1) // 2
    assert max(map(len, called.values())) <= count // 2 + 1


def test_each_node_of_a_large_cluster_meets_only_some_peers() -> None:
    nodes = names(200)
    called = calls(nodes, set(itertools.permutations(nodes, 2)))
    met = {node: len(called.get(node, [])) + sum(node in peers for peers in called.values()) for node in nodes}
    assert set(met.values()) == {SAMPLED_ROUNDS}


def test_throughput_is_measured_only_on_working_links() -> None:
    assert calls(names(2), {("node2", "node1")}) == {"node2": ["node1"]}
    assert calls(names(2), set()) == {}
    assert again([("node1", "node3"), ("node1", "node2")]) == {"node1": ["node3", "node2"]}


def every(count: int) -> set[tuple[str, str]]:
    return set(itertools.permutations(names(count), 2))


def blamed(count: int, bad: set[tuple[str, str]]) -> list[tuple[str, str, int]]:
    return [(share.node, share.way, len(share.links)) for share in blame(names(count), bad, every(count))]


def test_node_with_only_bad_links_is_blamed() -> None:
    pairs = every(4)
    assert blamed(4, {pair for pair in pairs if pair[1] == "node3"}) == [("node3", "to", 3)]
    assert blamed(4, {pair for pair in pairs if pair[0] == "node3"}) == [("node3", "from", 3)]
    assert blamed(4, {pair for pair in pairs if "node3" in pair}) == [("node3", "both", 6)]


def test_pair_is_blamed_for_a_single_bad_link() -> None:
    assert blamed(4, {("node1", "node3")}) == [("node3", "pair", 1)]
    assert blamed(2, {("node1", "node2"), ("node2", "node1")}) == [("node1", "pair", 1), ("node2", "pair", 1)]


def test_node_with_mostly_bad_links_is_blamed_and_other_bad_links_are_listed() -> None:
    bad = {("node1", "node8"), ("node2", "node8"), ("node3", "node8"), ("node4", "node8"), ("node5", "node8")}
    assert blamed(8, {*bad, ("node1", "node2")}) == [("node8", "to", 5), ("node2", "pair", 1)]


def test_no_single_node_is_blamed_if_all_nodes_are_disconnected() -> None:
    assert blamed(3, every(3)) == [("node1", "to", 2), ("node2", "to", 2), ("node3", "to", 2)]


def test_pair_that_is_bad_in_both_directions_is_reported_once() -> None:
    shares = blame(names(2), every(2), every(2))
    assert couples(names(2), shares) == [BlameShare("node1", "pair", (("node1", "node2"),))]
