"""Validation of cluster_quarantined, its messages, and launches blocked by a node's own copy."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.inventory.options import Option, read
from muster.members import quarantine


@cases(__file__, "read")
def test_quarantine_option_is_validated(case: dict[str, Any]) -> None:
    option = Option(quarantine.OPTION, "raw")
    if "problem" in case:
        with pytest.raises(ValueError, match=r"\w") as found:
            read(option, case["value"])
        assert str(found.value) == case["problem"]
        return
    assert read(option, case["value"]) == case["read"]
    assert quarantine.words(case["read"]) == case.get("words", "")


@cases(__file__, "said")
def test_quarantine_messages_match_the_case(case: dict[str, Any]) -> None:
    if "problems" in case:
        found = quarantine.problems(case["names"], case["nodes"], case.get("chosen", []), case.get("reason"))
        assert found == case["problems"]
    if "ranks" in case:
        assert quarantine.ranks_said(case["nodes"]) == case["ranks"]
    if "refused" in case:
        found = [f"{one.summary} | {one.fix}" for one in quarantine.refused("node2", case["copy"])]
        assert found == case["refused"]


def test_date_and_author_are_kept_if_the_reason_is_unchanged() -> None:
    first = quarantine.entry("a fan", "anna@ctl", "2026-11-24 10:15 UTC")
    again = quarantine.entry(" a \n fan ", "bert@ctl", "2026-11-25 08:00 UTC")
    assert quarantine.keeps(first, again)
    assert not quarantine.keeps(first, {**again, "reason": "two fans"})
    assert not quarantine.keeps(True, again)
    by_itself = quarantine.entry("a fan", "health", "2026-11-24 10:15 UTC", automatic=True)
    assert not quarantine.keeps(by_itself, again), "a person confirms it by saying the same"


def test_reason_is_reduced_to_one_line_without_template_markers() -> None:
    said = quarantine.reason_of("{{ lookup('pipe', 'id') }}\n\x1b[2J" + 1000 * "x")
    assert "{{" not in said
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) == quarantine.MOST
