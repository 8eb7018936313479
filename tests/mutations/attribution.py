"""Which mutants of a group the suite has caught: decided by its failed tests, each mutant alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mutations.mutant import Mutant

STAGES_ALONE = {"lint", "newest"}  # no other test waits for them
NOT_ENDED = "the suite did not end in time"


@dataclass(frozen=True)
class Failure:
    """test: a test, a file of tests that could not be loaded, or "" for a stage that failed without a test."""

    stage: str
    test: str = ""

    @property
    def hides_others(self) -> bool:
        """Whether tests were not run because of it: a file of tests, or a stage, that could not go on."""
        return "::" not in self.test and self.stage not in STAGES_ALONE

    def __str__(self) -> str:
        return self.test or f"stage {self.stage}"


@dataclass(frozen=True)
class Outcome:
    """How a run ended. in_time: False where it was stopped."""

    failures: list[Failure] = field(default_factory=list)
    in_time: bool = True


class Suite(Protocol):
    def __call__(self, mutants: Sequence[Mutant], only: Sequence[Failure] | None) -> Outcome:
        """Run the suite, or only what has failed before, with these mutants applied."""


@dataclass(frozen=True)
class Result:
    """caught_by: the first test that fails with this mutant alone; "" if it survived."""

    mutant: Mutant
    caught_by: str


def attribute(group: Sequence[Mutant], suite: Suite) -> list[Result]:
    """What fails without a mutant as well counts for none."""
    outcome = suite(group, None)
    anyway = suite([], outcome.failures).failures if outcome.failures else []
    failures = in_order([failure for failure in outcome.failures if failure not in anyway])
    caught: dict[str, str] = {}
    for one in group if failures else ():
        alone = suite([one], failures)
        if alone.failures or not alone.in_time:
            caught[one.key] = str(in_order(alone.failures)[0]) if alone.failures else NOT_ENDED
    rest = [one for one in group if one.key not in caught]
    hidden = not outcome.in_time or any(failure.hides_others for failure in failures)
    if rest and hidden and len(group) > 1:
        smaller = [rest] if len(rest) < len(group) else [[one] for one in rest]
        caught.update({each.mutant.key: each.caught_by for part in smaller for each in attribute(part, suite)})
    elif rest and not outcome.in_time:
        caught[group[0].key] = NOT_ENDED
    return [Result(one, caught.get(one.key, "")) for one in group]


def in_order(failures: Sequence[Failure]) -> list[Failure]:
    """Tests before stages: what a stage says of a mutant is the less specific answer."""
    return sorted(failures, key=lambda failure: failure.test == "")
