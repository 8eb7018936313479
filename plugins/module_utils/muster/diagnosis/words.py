"""Formats a diagnosis as five lines of text, and as the content of diagnosis.json."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, TypedDict

from ..verdict.finding import evidence, fix_with
from ..verdict.printable import printable
from ..verdict.words import few
from .arguments import is_host
from .decide import CONFIRMED, LIKELY
from .model import NEAREST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.commands import OnNode
    from ..verdict.finding import FindingEvidence, FindingFix
    from .case import LaunchCase
    from .decide import Decided, JudgedCause
    from .model import Symptom

LAST_ERROR = re.compile(r"^Last error:\n(.+)$", re.MULTILINE)
MOST_OF_LAST_ERROR = 200  # characters
MOST_PROOFS = 2
MOST_CANDIDATES = 6
MOST_RULED_OUT = 12
SYMPTOM, WHERE, CAUSE, RULED_OUT, NEXT_STEP = "Symptom", "Where", "Cause", "Ruled out", "Next step"
EVERY_NODE = "every node"
NOWHERE = "no particular node: all nodes show the same symptoms"
NAMES = "node|peer|rank|what|address|port"
PLACES = re.compile(rf" \(\{{what\}}\)|\{{({NAMES})\}}")
ADVISED = re.compile(rf"(['\"]?)\{{({NAMES})\}}\1")


class SaidCause(TypedDict):
    """A cause as text. node, peer: "" if the cause concerns no specific node. rank: None if the cause concerns no
    specific rank. proofs: the first two answers that support the cause.

    open: questions that could have confirmed or ruled out the cause, and why they were not checked.
    """

    id: str
    group: str
    scope: str
    word: str
    node: str
    peer: str
    rank: int | None
    says: str
    proofs: list[FindingEvidence]
    fix: FindingFix
    open: list[str]


class SymptomShape(TypedDict):
    id: str
    node: str
    rank: int | None
    when: float
    line: str
    victim: bool


class Diagnosis(TypedDict):
    """A diagnosis as text. word: confirmed, likely or unknown. lines: symptom, where, cause, ruled out, next step.
    parts: the same lines by name."""

    schema: int
    launch_id: str
    word: str
    lines: list[str]
    parts: dict[str, str]
    causes: list[SaidCause]
    candidates: list[SaidCause]
    also_seen: list[SaidCause]
    ruled_out: list[SaidCause]
    symptoms: list[SymptomShape]
    not_looked: dict[str, str]


def diagnosis(case: LaunchCase, decided: Decided) -> Diagnosis:
    parts = {name: printable(text) for name, text in five_parts(case, decided).items()}
    return {
        "schema": 1,
        "launch_id": case.launch["launch_id"],
        "word": decided.word,
        "lines": lines_of(parts),
        "parts": parts,
        "causes": [said(case, one) for one in decided.causes],
        "candidates": [said(case, one) for one in decided.candidates[:MOST_CANDIDATES]],
        "also_seen": [said(case, one) for one in decided.also_seen[:MOST_CANDIDATES]],
        "ruled_out": [said(case, one) for one in decided.ruled_out[:MOST_RULED_OUT]],
        "symptoms": [
            {
                "id": one.id,
                "node": one.node,
                "rank": one.rank,
                "when": one.when,
                "line": printable(one.line),
                "victim": one.victim,
            }
            for one in decided.seen
        ],
        "not_looked": dict(case.seen["not_looked"]),
    }


def outcome(said: Diagnosis) -> str:
    """Return the cause and the next step in one sentence."""
    if said["causes"]:
        first = said["causes"][0]
        command = first["fix"].get("command")
        return f"{first['word']}: {first['says']}. {first['fix']['text']}{f': {command}' if command else ''}"
    return f"the cause is unknown; {said['parts'][NEXT_STEP]}"


def said(case: LaunchCase, one: JudgedCause) -> SaidCause:
    proofs = one.proofs if one.word in (CONFIRMED, LIKELY) else []
    shown = [
        each for proof in proofs[:MOST_PROOFS] for each in evidence(printable(proof.source), printable(proof.text))
    ]
    against = [each for proof in one.against[:1] for each in evidence(printable(proof.source), printable(proof.text))]
    return {
        "id": one.cause.id,
        "group": one.cause.group,
        "scope": one.cause.scope,
        "word": one.word,
        "node": one.place.node,
        "peer": one.place.peer,
        "rank": one.place.rank,
        "says": printable(filled(case, one, one.cause.says)),
        "proofs": shown or (against if one.word not in (CONFIRMED, LIKELY) else []),
        "fix": fix_with(advice(case, one), command_of(case, one, one.cause.command)),
        "open": [
            printable(f"{question.id}: {answer.text}")
            for question, answer in one.answers
            if answer.word == "not looked"
        ],
    }


def filled(case: LaunchCase, one: JudgedCause, text: str) -> str:
    """Fill each placeholder of a text once. Placeholders within the inserted values are not filled."""
    values = values_of(case, one)
    return PLACES.sub(
        lambda found: values[found[1]] if found[1] else f" ({what})" if (what := values["what"]) else "", text
    )


def advice(case: LaunchCase, one: JudgedCause) -> str:
    """Return the text of the fix. A fix of a site rule may contain a command, so values that come from a log or a node
    are quoted as one word, unless they are valid host names."""
    values = values_of(case, one)
    for name in ("what", "address"):
        if values[name] and not is_host(values[name]):
            values[name] = shlex.quote(values[name])
    return ADVISED.sub(lambda found: in_quotes(found[1], values[found[2]]), one.cause.fix)


def in_quotes(mark: str, value: str) -> str:
    """Return the value in the quotes that surround its placeholder, unless the value is already quoted."""
    return value if value.startswith("'") else f"{mark}{value}{mark}"


def command_of(case: LaunchCase, one: JudgedCause, command: str | OnNode) -> str:
    """Return the command of a cause; "" if a name in the command is invalid, or if its node is not in the inventory."""
    if isinstance(command, str):
        return command
    values = values_of(case, one)
    if one.everywhere:
        values["node"] = case.head
    named = [values[name] for name in (*command.places, command.at) if name in values]
    if not all(map(is_host, named)) or not case.is_in_the_inventory(values[command.at]):
        return ""
    return command.filled(values)


def values_of(case: LaunchCase, one: JudgedCause) -> dict[str, str]:
    """Return the values of the placeholders."""
    rank = "" if one.place.rank is None else str(one.place.rank)
    node = one.place.node or (case.node_of(one.place.rank) if one.place.rank is not None else "")
    return {
        "node": EVERY_NODE if one.everywhere else node,
        "peer": one.place.peer,
        "rank": rank,
        "what": one.place.what,
        "address": case.launch["master_addr"],
        "port": str(case.launch["master_port"]),
    }


# ---------------------------------------------------------------- five lines


def five_parts(case: LaunchCase, decided: Decided) -> dict[str, str]:
    return {
        SYMPTOM: symptom(case, decided.seen),
        WHERE: where(decided),
        CAUSE: cause(case, decided),
        RULED_OUT: ruled_out(case, decided),
        NEXT_STEP: next_step(case, decided),
    }


def lines_of(parts: Mapping[str, str]) -> list[str]:
    return [f"{name}: {text}" for name, text in parts.items()]


def symptom(case: LaunchCase, seen: Sequence[Symptom]) -> str:
    """Return the first symptom that is not a consequence of another one; if all are, the first."""
    closed = {one.rank for one in case.all_failures if one.by_launcher}
    own = [one for one in seen if not one.victim and one.final] or list(seen)
    first = min(own, key=lambda one: (one.rank in closed, one.when == 0.0, one.when), default=None)
    if first is None:
        return case.launch["ending_text"] or "no error was recorded"
    rank = "" if first.rank is None else f"rank {first.rank}"
    place = ", ".join(part for part in (rank, first.node) if part)
    line = f"{first.line}{more_words(case, first)}"
    return f"{place}: {line}" if place else line


def more_words(case: LaunchCase, first: Symptom) -> str:
    """Return the last error that NCCL printed, if torch's exception above it names only the type of the error."""
    for one in case.all_failures:
        if one.rank == first.rank and one.node == first.node and one.summary == first.line:
            said = LAST_ERROR.search(one.traceback)
            return f": {said[1].strip()[:MOST_OF_LAST_ERROR]}" if said else ""
    return ""


def where(decided: Decided) -> str:
    if not decided.causes:
        return "unknown"
    return "; ".join(dict.fromkeys(place_of(one) for one in decided.causes))


def place_of(one: JudgedCause) -> str:
    node, peer, rank = one.place.node, one.place.peer, one.place.rank
    if one.everywhere:
        return EVERY_NODE
    if peer:
        return f"between {node} and {peer}"
    if node:
        return node if rank is None else f"{node}, rank {rank}"
    return NOWHERE


def cause(case: LaunchCase, decided: Decided) -> str:
    if decided.causes:
        return ". ".join(because(case, one) for one in decided.causes[:2])
    if decided.candidates:
        names = [filled(case, one, one.cause.says) for one in decided.candidates]
        return f"unknown; possible: {few(list(dict.fromkeys(names)), '; or ')}"
    return "unknown; no known cause matches the symptoms"


def because(case: LaunchCase, one: JudgedCause) -> str:
    proofs = "; ".join(f"{proof.text} ({proof.source})" for proof in one.proofs[:MOST_PROOFS])
    return f"{filled(case, one, one.cause.says)} [{one.word}{': ' + proofs if proofs else ''}]"


def ruled_out(case: LaunchCase, decided: Decided) -> str:
    """Return the causes that were ruled out. Causes of the reported cause's group come first, then causes with a narrow
    scope."""
    said = [*decided.causes, *decided.candidates][:1]
    groups = [one.cause.group for one in said]
    nearest = sorted(
        decided.ruled_out, key=lambda one: (one.cause.group not in groups, NEAREST.index(one.cause.scope), -len(one.by))
    )
    named = dict.fromkeys(filled(case, one, one.cause.says) for one in nearest)
    return few(list(named), "; ") if named else "nothing was ruled out"


def next_step(case: LaunchCase, decided: Decided) -> str:
    if decided.causes:
        one = decided.causes[0]
        fix, command = advice(case, one), command_of(case, one, one.cause.command)
        return f"{fix}: {command}" if command else fix
    for one in decided.candidates:
        for question in one.open_questions:
            if command := command_of(case, one, question.command):
                return f"to distinguish these causes, run: {command}"
    return "keep the logs; Muster has no further check for these symptoms"
