"""What a launch needs for itself alone, and which of several launches gets it.

cases/seats: backend, nproc, gpus, uuids, visible (CUDA_VISIBLE_DEVICES) -> the seats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases
from muster.launch.reservation import Move, decide, seats_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@cases(__file__, "seats")
def test_seats(case: dict[str, Any]) -> None:
    env = {"CUDA_VISIBLE_DEVICES": case["visible"]} if "visible" in case else {}
    found = seats_of(case.get("backend", "nccl"), case["nproc"], env, case["gpus"], case.get("uuids", []))
    assert sorted(found) == sorted(case["expect"])


def holder(launch_id: str, *, begun: bool = False, us: str = "b") -> Any:
    return {"launch_id": launch_id, "begun": begun, "ours": launch_id == us}


@pytest.mark.parametrize(
    ("seen", "move"),
    [
        ([[holder("b")], [holder("b")]], Move.BEGIN),
        ([[holder("b")], []], Move.AGAIN),  # its unit is not up yet
        ([[holder("b")], [holder("c")]], Move.AGAIN),  # a later one gives way
        ([[holder("b")], [holder("b", us="")]], Move.AGAIN),  # somebody has given a unit of their own our name
        ([[holder("b")], [holder("c", begun=True)]], Move.YIELD),
        ([[holder("b")], [holder("a")]], Move.YIELD),
        ([[holder("b")], [holder("")]], Move.YIELD),  # no launch at all
        ([[], [holder("c"), holder("a")]], Move.YIELD),
    ],
)
def test_what_is_seen_decides(seen: list[list[Any]], move: Move) -> None:
    assert decide("b", [{f"gpu-{number}": holders} for number, holders in enumerate(seen)]) is move


# ---------------------------------------------------------------- several launches at once


@dataclass
class World:
    """Launches that want nodes; each step of one is a try of its unit on a node, or a look and its decision."""

    wants: dict[str, tuple[str, ...]]
    held: dict[str, str] = field(default_factory=dict)
    begun: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    def copy(self) -> World:
        return World(self.wants, dict(self.held), self.begun, self.refused)

    def key(self) -> tuple[Any, ...]:
        return (tuple(sorted(self.held.items())), self.begun, self.refused)

    def steps(self) -> Iterator[World]:
        for launch, nodes in self.wants.items():
            if launch in self.begun | self.refused:
                continue
            for node in nodes:
                if node not in self.held:
                    after = self.copy()
                    after.held[node] = launch
                    yield after
            yield self.decided(launch, nodes)

    def decided(self, launch: str, nodes: tuple[str, ...]) -> World:
        seen = [
            {"cpu": [holder(owner, begun=owner in self.begun, us=launch)] if (owner := self.held.get(node)) else []}
            for node in nodes
        ]
        after, move = self.copy(), decide(launch, seen)
        if move is Move.BEGIN:
            after.begun |= {launch}
        elif move is Move.YIELD:
            after.refused |= {launch}
            after.held = {node: owner for node, owner in self.held.items() if owner != launch}
        return after


@pytest.mark.parametrize(
    "wants",
    [
        [("n1", "n2")] * 2,
        [("n1", "n2")] * 3,
        [("n1", "n2"), ("n2", "n3"), ("n3", "n1")],
        [("n1", "n2", "n3"), ("n1",), ("n2", "n3")],
    ],
)
def test_in_whatever_order_things_happen_nobody_shares_and_somebody_wins(wants: list[tuple[str, ...]]) -> None:
    for order in set(permutations(wants)):
        ends = list(reachable(World(dict(zip("abc", order, strict=False)))))
        assert ends
        for world in ends:
            assert world.begun, "all were refused"
            assert world.begun | world.refused == set(world.wants), "somebody waits for ever"
            taken = [node for launch in world.begun for node in world.wants[launch]]
            assert len(taken) == len(set(taken)), "two have the same"


def reachable(first: World) -> Iterator[World]:
    """Every state in which nothing changes any more."""
    known, left = {first.key()}, [first]
    while left:
        world = left.pop()
        after = [one for one in world.steps() if one.key() != world.key()]
        if not after:
            yield world
        for one in after:
            if one.key() not in known:
                known.add(one.key())
                left.append(one)
