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
    """id: name of the row. fault: description for the table. right: correct causes as "id @ place" (judged.line). twin:
    shared by rows whose ranks print the same line. arguments: for faulty.py. variables: for the launch. own: a user
    launch without root. blind: the cause cannot be determined, so "unknown" with a correct candidate is accepted.
    missed: why a detectable cause is not found. "unknown" is then accepted, and counts as a miss.

    before: context manager that injects, proves and reverts the fault before the start. strike: injects the fault once
    the ranks are in step. proof: checks that the fault is active. undo: reverts the fault at the end. gates: nodes on
    which faulty.py causes the fault.
    """

    id: str
    fault: str
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
