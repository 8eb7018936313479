"""A row of the campaign: one fault, really injected into a launch, and what a diagnosis of it must say.

The launch has one rank on each of node1, node2 and node3, in this order, unless a row says otherwise.
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
    """id: of the row. fault: in words, for the table. right: causes that are right, as "id @ place" (judged.line).
    twin: of rows that print the same line. arguments: of faulty.py. variables: of the launch. own: somebody's own
    launch, without root. blind: nobody can know it, so that unknown is the right answer, with a right cause among its
    candidates. missed: why it is not found out, though it could be; then unknown is what is said, and counts as a miss.

    before: puts the fault in before the start, proves that it is on, and takes it out at the end. strike: does it once
    the ranks are in step, proof says that it is on, and undo takes it out at the end. gates: nodes on which what is due
    begins, where faulty.py does it.
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
