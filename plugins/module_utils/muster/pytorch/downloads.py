"""Which node downloads the wheels that several need, and where the others fetch them: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Other nodes that are asked whether they have kept the wheels of the lock.
MOST_PEERS = 3


@dataclass(frozen=True)
class WheelNeed:
    """What a look found that a node needs.

    build: whether it needs wheels. key: the same on nodes that need the same ones. here: whether it has those of the
    lock. section: what the lock has for it, as Section.as_dict gives it; None for nothing.
    """

    build: bool
    key: str
    here: bool
    section: Mapping[str, Any] | None = None


def downloader(key: str, needs: Mapping[str, WheelNeed]) -> str:
    """The node that downloads what this key stands for: the first of the play that needs it, or that has it already."""
    same = [name for name, need in needs.items() if need.build and need.key == key]
    return min(same, key=lambda name: not needs[name].here, default="")


def holders(own: str, key: str, needs: Mapping[str, WheelNeed], nodes: Sequence[str]) -> list[str]:
    """Nodes that have the wheels of the lock, or may have kept them: the first ones of the inventory (nodes)."""
    sure = [name for name, need in needs.items() if need.here and need.key == key]
    return [name for name in dict.fromkeys([*sure, *nodes]) if name != own][:MOST_PEERS]
