"""Every file in cases/facts says in what a look differed from the recorded one, and what the facts then are.

looks: by subject, laid over recorded.yml. facts: a part of them; what is not named may be anything. skipped: all of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cases import cases, document_of
from muster.inspect.facts import facts

HERE = Path(__file__).parent


def part(whole: Any, wanted: Any) -> Any:
    """Return the part of the whole that the case speaks of."""
    if isinstance(wanted, dict) and isinstance(whole, dict) and wanted:
        return {key: part(whole.get(key), value) for key, value in wanted.items()}
    return whole


@cases(__file__, "facts")
def test_the_facts_are_those_of_the_case(case: dict[str, Any]) -> None:
    looks = document_of(HERE / "recorded.yml")
    for subject, changes in case["looks"].items():
        looks[subject].update(changes)
    found = facts(looks)
    assert part(found, case["facts"]) == case["facts"]
    assert sorted(found["skipped"]) == case["skipped"]
    assert all(found["skipped"].values())


def test_a_look_at_less_gives_the_facts_that_it_can() -> None:
    looks = document_of(HERE / "recorded.yml")
    found = facts({name: looks[name] for name in ("system", "clock", "stack")})
    assert set(found) == {"system", "looked_as", "identity", "stack", "skipped"}
    assert found["skipped"] == {}
