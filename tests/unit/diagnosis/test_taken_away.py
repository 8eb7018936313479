"""If the evidence for a confirmed cause is removed, the cause is no longer confirmed, and no other node is blamed.

The tests remove the answers that confirm the cause and, one at a time, parts of the evidence: a finding, a node's
record, a snapshot, the last output of a rank.
"""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases import load_cases
from muster.diagnosis.case import LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import CONFIRMED, LIKELY, decide, plainly
from muster.diagnosis.model import not_looked
from sparse import case_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.diagnosis.decide import Decided, JudgedCause
    from muster.diagnosis.model import Cause, CauseAnswer, CausePlace, Question

    Part = tuple[Any, ...]

ALL = load_cases(Path(__file__).parent / "cases" / "decide")
# Results of checks, in contrast to symptoms of the launch itself.
LOOKS = ("findings", "ran", "snapshots", "agents", "start", "end", "not_looked")
# These cases have a second fault that matches the remaining evidence; only the removed part excludes it.
TWO_FAULTS = {"found_now_and_not_then-1"}
# As in evidence.py, an unchecked part is None, not an empty value.
EMPTY = {"code": None, "gone_at": None, "unit": None, "program": None, "kernel": None, "gpus": None, "fabric": None}
KEPT = ("node", "rank", "local_rank", "reached", "at", "boot_id", "hostname", "unseen", "last_answer")


@cache
def decided(name: str) -> tuple[LaunchCase, Decided]:
    case = case_of(ALL[name]["seen"])
    return case, decide(case, CAUSES)


def cases_of(cause: Cause, word: str) -> list[str]:
    """Return the cases that report the cause with this certainty."""
    return [
        name for name in ALL if any(one.cause.id == cause.id and one.word == word for one in decided(name)[1].causes)
    ]


def where(one: JudgedCause) -> tuple[str, str]:
    return one.place.node, one.place.peer


def blames(case: LaunchCase, before: Decided, after: Decided) -> list[str]:
    """Return newly confirmed causes on nodes that were not named before. There are two exceptions: causes that are
    confirmed if only they are checked, and causes that concerned all nodes. The latter name nodes as soon as fewer
    nodes are known."""
    alike = {one.cause.id for one in before.causes if not any(where(one))}
    named = {name for one in before.causes for name in where(one)}
    return [
        f"{one.cause.id} at {where(one)}"
        for one in after.causes
        if one.word == CONFIRMED
        and one.cause.id not in alike
        and not set(where(one)) <= named | {""}
        and where(one) not in {where(alone) for alone in decide(case, [one.cause]).causes}
    ]


CHECKED = [cause for cause in CAUSES if any(not one.by_words for one in cause.confirm)]
BY_EVIDENCE = [cause for cause in CAUSES if cause not in CHECKED and (cause.confirm or cause.support or cause.decisive)]


@pytest.mark.parametrize("cause", CHECKED, ids=lambda cause: cause.id)
def test_cause_is_not_confirmed_without_its_evidence(cause: Cause) -> None:
    names = cases_of(cause, CONFIRMED)
    assert names, f"no case in cases/decide confirms {cause.id}: add one"
    for name in names:
        case, before = decided(name)
        proofs = {
            question
            for one in before.causes
            if one.cause.id == cause.id
            for question, _ in one.answered("yes", cause.confirm)
        }
        assert proofs, name

        def without(question: Question, asked: LaunchCase, place: CausePlace, proofs: Any = proofs) -> CauseAnswer:
            return not_looked("removed") if question in proofs else plainly(question, asked, place)

        after = decide(case, CAUSES, without)
        assert not [one for one in after.causes if one.cause.id == cause.id and one.word == CONFIRMED], name
        assert blames(case, before, after) == [], name


@pytest.mark.parametrize("cause", BY_EVIDENCE, ids=lambda cause: cause.id)
def test_cause_without_a_confirming_question_is_likely_only_with_its_evidence(cause: Cause) -> None:
    names = cases_of(cause, LIKELY)
    assert names, f"no case in cases/decide makes {cause.id} likely: add one"
    for name in names:
        case, before = decided(name)
        gone = [
            (part, after)
            for part, after in each_without(case)
            if cause.id not in {one.cause.id for one in after.causes}
        ]
        assert gone, name
        assert all(blames(case, before, after) == [] for part, after in gone if part[0] in LOOKS), name


@pytest.mark.parametrize("name", [name for name in ALL if decided(name)[1].word == CONFIRMED])
def test_removing_evidence_does_not_blame_another_node(name: str) -> None:
    case, before = decided(name)
    said = {(one.cause.id, where(one)) for one in before.causes}
    left: set[Any] = set(said)
    for part, after in each_without(case):
        assert after.word == CONFIRMED or not [one for one in after.causes if one.word == CONFIRMED], part
        left &= {(one.cause.id, where(one)) for one in after.causes if one.word == CONFIRMED}
        if part[0] in LOOKS and name not in TWO_FAULTS:
            assert blames(case, before, after) == [], part
    assert left == set(), "the cause is confirmed even if any part is removed"


def test_some_cases_have_two_faults() -> None:
    assert set(ALL) >= TWO_FAULTS


# ---------------------------------------------------------------- removal of parts


def each_without(case: LaunchCase) -> Iterator[tuple[Part, Decided]]:
    for part in parts(case.seen):
        yield part, decide(LaunchCase(without_part(case.seen, part)), CAUSES)


def parts(seen: Any) -> Iterator[Part]:
    for number in range(len(seen["findings"])):
        yield "findings", number
    for name in ("ran", "snapshots", "agents", "not_looked"):
        yield from ((name, node) for node in seen[name])
    for name in ("start", "end"):
        for node, record in seen[name].items():
            yield name, node
            yield from fields((name, node), record)
    for name in ("ranks", "nodes"):
        for number, entry in enumerate(seen[name]):
            yield from fields((name, number), entry)
        for field in dict.fromkeys(field for entry in seen[name] for field in entry if entry[field]):
            if field not in KEPT:
                yield name, ..., field
    yield from (
        ("launch", field) for field in ("ending", "ending_text", "ending_node", "live") if seen["launch"][field]
    )


def fields(place: Part, entry: Any) -> Iterator[Part]:
    for field, value in entry.items():
        if value and field not in KEPT:
            yield (*place, field)
            if field in ("unit", "program"):
                yield from fields((*place, field), value)


def without_part(seen: Any, part: Part) -> Any:
    left = copy.deepcopy(seen)
    if part[0] == "findings":
        gone = left["findings"].pop(part[1])
        for node in {gone["node"], gone.get("peer")} & set(left["ran"]):
            ran = left["ran"][node]
            left["ran"][node] = [one for one in ran if not f"{gone['id']}.".startswith(f"{one}.")]
    elif part[1] is ...:
        for entry in left[part[0]]:
            entry[part[2]] = empty(part[2], entry[part[2]])
    else:
        place = left
        for step in part[:-1]:
            place = place[step]
        if part[0] == "launch" or len(part) > 2:
            place[part[-1]] = empty(part[-1], place[part[-1]])
        else:
            del place[part[-1]]
    return left


def empty(field: Any, value: Any) -> Any:
    """Return the value that means "not checked": empty for containers and strings, None for numbers."""
    if field in EMPTY:
        return EMPTY[field]
    return type(value)() if isinstance(value, (str, list, dict, bool)) or field == "ended_at" else None
