"""Attribute the failed tests of a group of mutants to single mutants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mutations.mutant import Mutant

STAGES_ALONE = {"lint", "newest"}  # no other test depends on them
NOT_ENDED = "the suite did not end in time"


@dataclass(frozen=True)
class Failure:
    """A failure in a test run. test: a test, a test file that failed to import, or "" for a stage that failed without a
    failed test."""

    stage: str
    test: str = ""

    @property
    def hides_others(self) -> bool:
        """Return whether the failure prevented other tests from running: a test file or a stage could not run."""
        return "::" not in self.test and self.stage not in STAGES_ALONE

    def __str__(self) -> str:
        return self.test or f"stage {self.stage}"


@dataclass(frozen=True)
class Outcome:
    """The result of a test run. in_time: False after a timeout."""

    failures: list[Failure] = field(default_factory=list)
    in_time: bool = True


class Suite(Protocol):
    def __call__(self, mutants: Sequence[Mutant], only: Sequence[Failure] | None) -> Outcome:
        """Run the suite, or only the failed tests, with these mutants applied."""


@dataclass(frozen=True)
class Result:
    """The result for a mutant. caught_by: first test that fails with only this mutant applied; "" if the mutant
    survived."""

    mutant: Mutant
    caught_by: str


def attribute(group: Sequence[Mutant], suite: Suite) -> list[Result]:
    """Return a result for each mutant. Tests that also fail without mutants are ignored."""
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
    """Sort tests before stages, because a failed stage is less specific."""
    return sorted(failures, key=lambda failure: failure.test == "")
