"""Choose the next stage, and the stages that fit into the time limit of CI. Nothing here runs processes or reads
clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .stage import Stage

# A stage starts only if this many times its recorded duration ends within the budget.
SLACK = 1.5


def take_next(waiting: Sequence[Stage], lane: int) -> Stage | None:
    """Return the next stage for a lane.

    The first lane has a sandbox and prefers stages with nodes. The other lanes prefer stages without nodes, so that a
    short run needs only one sandbox.
    """
    preferred = [stage for stage in waiting if stage.nodes == (lane == 0)]
    return next(iter([*preferred, *waiting]), None)


def rotated(stages: Sequence[Stage], turn: int) -> list[Stage]:
    """Return the stages in order, beginning with the stage at index turn modulo the number of stages."""
    if not stages:
        return []
    first = turn % len(stages)
    return [*stages[first:], *stages[:first]]


def fits(stage: Stage, now: float, limit: float) -> bool:
    """Return whether the stage is likely to end within the limit. now, limit: seconds since the run began."""
    return now + SLACK * stage.seconds <= limit
