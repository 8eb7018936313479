"""Exclusive slots, and which of several competing launches gets them.

cases/seats: backend, nproc, gpus, uuids, visible (CUDA_VISIBLE_DEVICES) -> the slots.
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
def test_slots_of_a_launch_match_the_case(case: dict[str, Any]) -> None:
    env = {"CUDA_VISIBLE_DEVICES": case["visible"]} if "visible" in case else {}
    found = seats_of(case.get("backend", "nccl"), case["nproc"], env, case["gpus"], case.get("uuids", []))
    assert sorted(found) == sorted(case["expect"])


def holder(launch_id: str, *, begun: bool = False, us: str = "b") -> Any:
    return {"launch_id": launch_id, "begun": begun, "ours": launch_id == us}


@pytest.mark.parametrize(
    ("seen", "move"),
    [
        ([[holder("b")], [holder("b")]], Move.BEGIN),
        ([[holder("b")], []], Move.AGAIN),  # the unit has not started yet
        ([[holder("b")], [holder("c")]], Move.AGAIN),  # the later launch yields
        ([[holder("b")], [holder("b", us="")]], Move.AGAIN),  # another user's unit has the same name
        ([[holder("b")], [holder("c", begun=True)]], Move.YIELD),
        ([[holder("b")], [holder("a")]], Move.YIELD),
        ([[holder("b")], [holder("")]], Move.YIELD),  # a process outside of launches
        ([[], [holder("c"), holder("a")]], Move.YIELD),
    ],
)
def test_reservation_decision_depends_on_the_holders(seen: list[list[Any]], move: Move) -> None:
    assert decide("b", [{f"gpu-{number}": holders} for number, holders in enumerate(seen)]) is move


# ---------------------------------------------------------------- several launches at once


@dataclass
class World:
    """Launches that compete for nodes. A step is a unit's attempt to take a slot, or a decision of a supervisor."""

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
def test_slots_stay_exclusive_for_any_order_of_events(wants: list[tuple[str, ...]]) -> None:
    for order in set(permutations(wants)):
        ends = list(reachable(World(dict(zip("abc", order, strict=False)))))
        assert ends
        for world in ends:
            assert world.begun, "no launch has started"
            assert world.begun | world.refused == set(world.wants), "a launch waits forever"
            taken = [node for launch in world.begun for node in world.wants[launch]]
            assert len(taken) == len(set(taken)), "two launches share a node"


def reachable(first: World) -> Iterator[World]:
    """Yield all final states that any order of events can reach."""
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
