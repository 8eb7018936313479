"""Every file in cases/decide contains the evidence of a launch (format: sparse.py) and the expected decision.

expect: word; causes: ["id @ node rank N" …] in order; never: ids that must not be reported at any place;
says: proofs of the causes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import cases, load_cases
from lines import line
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import CONFIRMED, LIKELY, POSSIBLE, decide
from muster.diagnosis.words import five_parts, lines_of
from sparse import case_of

if TYPE_CHECKING:
    from muster.diagnosis.model import Cause

ALL = load_cases(Path(__file__).parent / "cases" / "decide")


@cases(__file__, "decide")
def test_evidence_leads_to_the_expected_decision(case: dict[str, Any]) -> None:
    decided = decide(case_of(case["seen"]), CAUSES)
    expect = case["expect"]
    assert [line(one) for one in decided.causes] == expect.get("causes", [])
    assert decided.word == expect["word"]
    proofs = [proof.text for one in decided.causes for proof in one.proofs]
    assert set(expect.get("says", [])) <= set(proofs), proofs
    left = {one.cause.id for one in (*decided.causes, *decided.also_seen, *decided.candidates)}
    assert not left & set(expect.get("never", []))
    if "candidates" in expect:
        assert {line(one) for one in decided.candidates} >= set(expect["candidates"])
    if "ruled_out" in expect:
        assert {line(one) for one in decided.ruled_out} >= set(expect["ruled_out"])


def test_every_cause_has_a_case() -> None:
    said = {
        (POSSIBLE if part == "candidates" else case["expect"]["word"], one.split(" @ ")[0])
        for case in ALL.values()
        for part in ("causes", "candidates")
        for one in case["expect"].get(part, [])
    }
    assert {(most_certain(cause), cause.id) for cause in CAUSES} - said == set()


def most_certain(cause: Cause) -> str:
    """Return the highest certainty that a cause can have."""
    if any(not one.by_words for one in cause.confirm):
        return CONFIRMED
    return LIKELY if cause.confirm or cause.decisive or cause.support else POSSIBLE


def test_running_launch_is_reported_as_running() -> None:
    stopped = {"node1": {"ranks": [{"rank": 0}]}, "node2": {"ranks": [{"rank": 2, "state": "T"}]}}
    case = case_of({"launch": {"live": True, "ending": "", "ending_text": ""}, "snapshots": stopped})
    what, where, *_ = lines_of(five_parts(case, decide(case, CAUSES)))
    assert what == "Symptom: the launch has not ended"
    assert where == "Where: node2, rank 2"
