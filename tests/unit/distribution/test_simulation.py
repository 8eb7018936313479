"""Simulation of a distribution to many nodes over links with given rates. Source order and pace are the real ones.

In each time step, a link of rate 1 carries one piece. A node's send rate is divided among its receivers, and its
receive rate is limited. The number of pieces requested ahead is the real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from muster.distribution.lines import lines
from muster_node.distribution.fetching import ASKED_AT_ONCE, TransferPace

if TYPE_CHECKING:
    from collections.abc import Mapping

PIECES = 300
NOTICED = 20  # steps until a source that is gone is noticed


@dataclass
class Node:
    """A simulated node. have: number of consecutive pieces received. up, down: pieces per step. came: fraction of the
    next piece."""

    name: str
    have: int = 0
    up: float = 1.0
    down: float = 1.0
    sources: list[str] = field(default_factory=list)
    came: float = 0.0
    pace: TransferPace = field(default_factory=lambda: TransferPace(PIECES))
    turn: int = 1
    dead: bool = False
    waits: int = 0
    done: int = 0


class Simulation:
    def __init__(self, count: int, holders: int = 1, rates: Mapping[str, tuple[float, float]] | None = None) -> None:
        having = [f"h{number}" for number in range(holders)]
        lacking = [f"t{number}" for number in range(count)]
        self.nodes = {name: Node(name) for name in [*having, *lacking]}
        for name in having:
            self.nodes[name].have = PIECES
        for name, sources in lines(having, lacking).items():
            self.nodes[name].sources = list(sources)
        for name, (up, down) in (rates or {}).items():
            self.nodes[name].up, self.nodes[name].down = up, down
        self.receivers = [self.nodes[name] for name in lacking]
        self.time = 0
        self.most_at_once = 0

    def run(self, dies: str = "", at: int = -1, most: int = 4 * PIECES) -> int:
        """Return the number of steps until all surviving nodes are complete."""
        while any(not node.dead and node.have < PIECES for node in self.receivers):
            self.time += 1
            assert self.time < most, "it does not come to an end"
            if self.time == at:
                self.nodes[dies].dead = True
            self.step()
        return self.time

    def step(self) -> None:
        before = {name: node.have for name, node in self.nodes.items()}
        active = [node for node in self.receivers if not node.dead and node.have < PIECES and node.sources]
        asked: dict[str, list[Node]] = {}
        for node in active:
            if before[node.sources[0]] > node.have and not self.nodes[node.sources[0]].dead:
                asked.setdefault(node.sources[0], []).append(node)
        self.most_at_once = max([self.most_at_once, *map(len, asked.values())])
        for name, receivers in asked.items():
            left = self.nodes[name].up
            for at, node in enumerate(sorted(receivers, key=lambda each: each.down)):
                carried = min(node.down, left / (len(receivers) - at))
                node.came, left = node.came + carried, left - carried
        for node in active:
            source = self.nodes[node.sources[0]]
            if source.dead:
                node.waits += 1
                if node.waits >= NOTICED:
                    self.change(node)
                continue
            # A source forwards a piece in the step after its arrival.
            new = min(int(node.came), before[source.name] - node.have, ASKED_AT_ONCE)
            node.have += new
            node.came = min(node.came - new, 1.0)
            node.done = self.time if node.have == PIECES else 0
            self.look(node, before)

    def look(self, node: Node, before: dict[str, int]) -> None:
        source = node.sources[0]
        above = self.nodes[source].sources
        ahead = before[above[0]] if above else before[source]
        if node.pace.too_slow(node.have, before[source], ahead, self.nodes[source].turn) and len(node.sources) > 1:
            self.change(node)

    def change(self, node: Node) -> None:
        del node.sources[0]
        node.waits, node.turn = 0, node.turn + 1
        node.pace.begin()


@pytest.mark.parametrize("count", [1, 2, 7, 63, 255])
def test_distribution_takes_only_slightly_longer_than_one_copy(count: int) -> None:
    simulation = Simulation(count)
    assert simulation.run() <= PIECES + 2 * count
    assert simulation.most_at_once == 1


@pytest.mark.parametrize("holders", [2, 5])
def test_distribution_is_faster_with_several_initial_sources(holders: int) -> None:
    simulation = Simulation(60, holders)
    assert simulation.run() <= PIECES + 2 * -(-60 // holders)
    assert simulation.most_at_once == 1


@pytest.mark.parametrize("count", [7, 63])
@pytest.mark.parametrize("place", [0, 3, -2])
@pytest.mark.parametrize("at", [1, PIECES // 2])
def test_dead_source_is_replaced(count: int, place: int, at: int) -> None:
    simulation = Simulation(count)
    dies = simulation.receivers[place].name
    assert simulation.run(dies, at) <= PIECES + 2 * count + 3 * NOTICED
    assert simulation.most_at_once <= 2


def test_dead_holder_is_replaced() -> None:
    simulation = Simulation(8, holders=2)
    # The other holder serves both lines.
    assert simulation.run("h0", PIECES // 2) <= 2 * PIECES


@pytest.mark.parametrize("rate", [0.5, 0.25, 0.1])
@pytest.mark.parametrize("place", [2, 4])
@pytest.mark.parametrize("sends", [True, False])
def test_slow_node_delays_other_nodes_by_at_most_a_factor_of_three(rate: float, place: int, *, sends: bool) -> None:
    """The node receives slowly. In some cases, it also sends slowly."""
    simulation = Simulation(7, rates={f"t{place}": (rate if sends else 1.0, rate)})
    whole = simulation.run(most=20 * PIECES)
    others = max(node.done for node in simulation.receivers if node.name != f"t{place}")
    assert others <= 3 * PIECES
    assert whole <= max(others, 1.3 * PIECES / rate)


def test_very_slow_node_hardly_delays_other_nodes() -> None:
    simulation = Simulation(7, rates={"t2": (0.02, 0.02)})
    simulation.run(most=60 * PIECES)
    assert max(node.done for node in simulation.receivers if node.name != "t2") <= 1.3 * PIECES


def test_slow_first_node_slows_the_whole_line() -> None:
    """Known limitation: a slow first node is not skipped, because no earlier node shows a faster pace."""
    simulation = Simulation(7, rates={"t0": (0.25, 0.25)})
    assert 4 * PIECES <= simulation.run(most=20 * PIECES) <= 5 * PIECES
