"""A row of the campaign: a real fault in a launch, and the expected diagnosis.

Unless a row says otherwise, the launch has one rank on each of node1, node2 and node3, in this order.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from scene import Scene


def nothing(scene: Scene) -> AbstractContextManager[None]:
    del scene
    return nullcontext()


@dataclass(frozen=True)
class Row:
    """id: of the row. fault: description for the table. right: correct causes as "id @ place" (judged.line). twin:
    shared by rows that print the same line. arguments: of faulty.py. variables: of the launch. own: a user launch
    without root. blind: the cause cannot be known, so unknown with a correct candidate is right. missed: reason why a
    detectable cause is not found, so unknown is accepted and counts as a miss.

    before: context manager that injects the fault before the start, proves and reverts it. strike: injects the fault
    once the ranks are in step; proof shows that it is on, and undo reverts it at the end. gates: nodes on which
    faulty.py starts its fault.
    """

    id: str
    fault: str
    group: str
    right: tuple[str, ...]
    twin: str = ""
    arguments: tuple[str, ...] = ()
    variables: dict[str, Any] = field(default_factory=dict)
    own: bool = False
    blind: bool = False
    missed: str = ""
    before: Callable[[Scene], AbstractContextManager[None]] = nothing
    strike: Callable[[Scene], Any] | None = None
    proof: Callable[[Scene], Any] | None = None
    undo: Callable[[Scene], Any] | None = None
    gates: tuple[str, ...] = ()
    in_ci: bool = False
