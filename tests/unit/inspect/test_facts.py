"""Each file in cases/facts contains changes to the recorded data, and the expected facts.

looks: data by subject, merged into recorded.yml. facts: only the listed facts are compared. skipped: the complete list.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cases import cases, document_of
from muster.inspect.boot_menu import NextKernel, next_kernel
from muster.inspect.facts import facts
from muster.inspect.floors import below, floors_of
from muster.verdict.check import collect

HERE = Path(__file__).parent
FLOORS = document_of(HERE.parents[2] / "roles/gpu_stack/files/floors.yml")


def part(whole: Any, wanted: Any) -> Any:
    if isinstance(wanted, dict) and isinstance(whole, dict) and wanted:
        return {key: part(whole.get(key), value) for key, value in wanted.items()}
    return whole


@cases(__file__, "facts")
def test_node_facts_match_the_case(case: dict[str, Any]) -> None:
    looks = document_of(HERE / "recorded.yml")
    for subject, changes in case["looks"].items():
        looks[subject].update(changes)
    found = facts(looks)
    assert part(found, case["facts"]) == case["facts"]
    assert sorted(found["skipped"]) == case["skipped"]
    assert all(found["skipped"].values())


def test_partial_data_yields_only_the_facts_it_contains() -> None:
    looks = document_of(HERE / "recorded.yml")
    found = facts({name: looks[name] for name in ("system", "clock", "stack")})
    assert set(found) == {"system", "looked_as", "identity", "stack", "skipped"}
    assert found["skipped"] == {}


@cases(__file__, "next_kernel")
def test_kernel_of_the_next_boot_is_read_from_the_boot_menu(case: dict[str, Any]) -> None:
    for boot in case["boots"]:
        found = next_kernel(case["menu"], boot.get("variables", ""))
        assert found == NextKernel(boot.get("release", ""), boot.get("why", "")), boot


@cases(__file__, "floors")
def test_versions_below_the_security_floors_are_reported(case: dict[str, Any]) -> None:
    judged = collect(below("node1", floors_of(FLOORS), case["packages"], case["kernel"], case["firmware"]))
    assert [one.summary for one in judged.findings] == case.get("findings", [])
    assert [one["why"] for one in judged.skipped] == case.get("skipped", [])
    assert {one.status for one in judged.findings} <= {"warn"}
