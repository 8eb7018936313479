"""Results of a seed: the evaluated mutants, from which a run can be resumed, and their table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mutations.attribution import Result
    from mutations.mutant import Mutant


class Records:
    """Results so far. caught_by: the test that caught a mutant, by the mutant's key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.caught_by: dict[str, str] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            kept = json.loads(line)
            self.caught_by[kept["key"]] = kept["caught_by"]

    def keep(self, results: Sequence[Result]) -> None:
        with self.path.open("a") as file:
            for result in results:
                self.caught_by[result.mutant.key] = result.caught_by
                row = {"key": result.mutant.key, "place": result.mutant.place, "caught_by": result.caught_by}
                file.write(json.dumps(row) + "\n")


def table(mutants: Sequence[Mutant], caught_by: Mapping[str, str]) -> str:
    """Return a text with a section for each evaluated mutant and the number of caught mutants."""
    known = [one for one in mutants if one.key in caught_by]
    parts = []
    for number, one in enumerate(known, 1):
        result = f"caught by {caught_by[one.key]}" if caught_by[one.key] else "SURVIVED"
        parts.append(f"{number}. {one.place}  {one.room}, {one.change.kind}\n   {result}\n{indented(one.diff)}\n")
    by_stage = sum(caught_by[one.key].startswith("stage ") for one in known)
    caught = sum(bool(caught_by[one.key]) for one in known)
    alone = f", {by_stage} of them by a stage without a failed test" if by_stage else ""
    parts.append(f"caught {caught} of {len(known)}{alone}\n")
    return "\n".join(parts)


def indented(diff: str) -> str:
    return "\n".join(f"   {line}" for line in diff.splitlines())
