"""Evaluates the causes of a failed launch. The result is confirmed causes, a likely cause, or "unknown" with the
remaining candidates.

A confident wrong answer is worse than none:
- a confirmed cause needs a symptom and, for the same place, a question answered with yes;
- a check that did not run never counts as "no", and what a log does not contain rules nothing out;
- an exception or exit is a symptom: a cause of a known line in the same output comes first, even if only as possible;
- a failure that is only a consequence of another failure does not blame a node;
- all confirmed causes are reported; several likely causes at different places make the result unknown.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from . import symptoms
from .case import once
from .model import NEAREST, CauseAnswer, not_looked, yes
from .texts import TEXTS
from .texts.usual import USUAL, VAGUE, WHERE_IT_HANGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .case import LaunchCase
    from .model import Cause, CausePlace, Question, Symptom

    Ask = Callable[[Question, LaunchCase, CausePlace], CauseAnswer]

CONFIRMED, LIKELY, POSSIBLE, RULED_OUT = "confirmed", "likely", "possible", "ruled out"
EXPLAINED = "explained"  # by a better cause; neither reported nor ruled out
ORDINARY = frozenset(text.id for text in TEXTS if text.ordinary)
LINE = 100  # characters by which a line is recognized in a summary, which may be shortened
ENOUGH_SUPPORT = 2  # independent pieces of evidence


@dataclass(frozen=True)
class JudgedCause:
    """A cause at a place. word: confirmed, likely, possible or ruled out. answers: the questions with their answers.
    by: the symptoms that made the cause a candidate. everywhere: the cause applies to all nodes, so its place names no
    node."""

    cause: Cause
    place: CausePlace
    word: str
    answers: tuple[tuple[Question, CauseAnswer], ...]
    by: tuple[Symptom, ...]
    everywhere: bool = False

    def answered(self, word: str, questions: Sequence[Question]) -> list[tuple[Question, CauseAnswer]]:
        return [
            (question, answer) for question, answer in self.answers if answer.word == word and question in questions
        ]

    @property
    def proofs(self) -> list[CauseAnswer]:
        """Return the answers that support the cause; if there are none, the lines that make it likely."""
        found = [answer for _, answer in self.answered("yes", (*self.cause.confirm, *self.cause.support))]
        lines = [one for one in self.by if one.id in self.cause.decisive and concerns(one, self.place)]
        return found or [yes(one.line, f"output of {speaker(one)}", one.when) for one in lines]

    @property
    def against(self) -> list[CauseAnswer]:
        """Return the answers that rule out the cause."""
        refuted = [answer for _, answer in self.answered("yes", self.cause.refute)]
        return refuted or [answer for _, answer in self.answered("no", self.cause.confirm)]

    @property
    def open_questions(self) -> list[Question]:
        return [question for question, _ in self.answered("not looked", (*self.cause.confirm, *self.cause.refute))]

    @property
    def since(self) -> float:
        known = [answer.at for answer in self.proofs if answer.at]
        return min(known, default=float("inf"))


@dataclass(frozen=True)
class Decided:
    """The result of a diagnosis. word: confirmed, likely or unknown. causes: the causes to report. candidates: the
    remaining causes if the result is unknown.

    also_seen: likely causes in addition to a confirmed one.
    """

    word: str
    causes: list[JudgedCause]
    candidates: list[JudgedCause]
    ruled_out: list[JudgedCause]
    also_seen: list[JudgedCause]
    seen: list[Symptom]


def plainly(question: Question, case: LaunchCase, place: CausePlace) -> CauseAnswer:
    try:
        return question.look(case, place)
    except (KeyError, IndexError, TypeError, ValueError) as exc:  # a case of another release
        return not_looked(f"{question.id} could not be answered ({type(exc).__name__})")


def decide(case: LaunchCase, causes: Iterable[Cause], ask: Ask = plainly) -> Decided:
    seen = symptoms.read(case)
    telling = [one for one in seen if not follows(case, one)]
    ordinary = [one for one in telling if one.id in ORDINARY]
    telling = [one for one in telling if one.id not in ORDINARY]
    if {one.id for one in telling} <= {"launch.stalled"} and symptoms.ends_with(case, ORDINARY):
        telling += ordinary
    hints = [one for one in ordinary if one.id not in WHERE_IT_HANGS and one not in telling]
    found = [
        judge(case, cause, place, by, ask)
        for cause in causes
        if any(one.id in cause.symptoms for one in telling)
        for by in [tuple(one for one in (*telling, *hints) if one.id in cause.symptoms)]
        for place in dict.fromkeys(cause.places(case, by))
    ]
    lines = [one for one in seen if one.id not in symptoms.OTHERS]
    words: dict[int, set[str]] = {}  # of the causes of each line; by id, because comparing lines is slow
    for one in found:
        for line in one.by if not one.cause.restates else ():
            if concerns(line, one.place):
                words.setdefault(id(line), set()).add(one.word)
    judged = [below_known(case, one, lines, words) if one.cause.restates else one for one in found]
    by_word = {word: [one for one in judged if one.word == word] for word in (CONFIRMED, LIKELY, POSSIBLE, RULED_OUT)}
    proved = once_a_pair(without_its_pairs(without_explained(by_word[CONFIRMED], by_word[CONFIRMED])))
    confirmed = ordered(together(case, proved))
    likely = ordered(together(case, without_explained(by_word[LIKELY], [*by_word[CONFIRMED], *by_word[LIKELY]])))
    if confirmed:
        return Decided(CONFIRMED, confirmed, [], by_word[RULED_OUT], likely, seen)
    breadth = Counter(name for one in {one.cause.id: one.cause for one in found}.values() for name in one.symptoms)
    open_ones = sorted(by_word[POSSIBLE], key=lambda one: usual_first(one, breadth))
    if len({(one.place.node, one.place.peer) for one in likely}) == 1:
        return Decided(LIKELY, likely[:1], likely[1:], by_word[RULED_OUT], [], seen)
    return Decided("unknown", [], [*likely, *open_ones], by_word[RULED_OUT], [], seen)


def below_known(
    case: LaunchCase, one: JudgedCause, lines: Sequence[Symptom], words: Mapping[int, set[str]]
) -> JudgedCause:
    """Return a cause that restates its symptom below the causes of the known lines in the same output: ruled out if one
    of them is confirmed or likely, possible if one of them is, and otherwise at most likely. words: of the causes of
    each line."""
    own = [line for line in lines if is_of(case, line, one) and not follows(case, line)]
    known = {word for line in own for word in words.get(id(line), ())}
    if one.word == RULED_OUT:
        return one
    if known & {CONFIRMED, LIKELY}:
        return replace(one, word=EXPLAINED)
    if POSSIBLE in known:
        return replace(one, word=POSSIBLE)
    is_known = own or any(line.line[:LINE] == one.place.what[:LINE] for line in lines)
    return replace(one, word=LIKELY) if one.word == CONFIRMED and is_known else one


def is_of(case: LaunchCase, line: Symptom, one: JudgedCause) -> bool:
    """Return whether a known line can explain how the rank or launcher at this place ended. The lines of a launcher in
    a log may be those of its ranks. After an exception, a lost connection is a consequence, and a warning of NCCL
    concerns only exceptions of the communication."""
    place, raised = one.place, "rank.exception" in one.cause.symptoms
    is_rank = place.rank is None or line.rank == place.rank or (line.rank is None and case.is_only_a_log)
    if not is_rank or place.node not in ("", line.node) or not line.counts or (raised and line.victim):
        return False
    return not raised or line.final or symptoms.COMMUNICATION.search(place.what) is not None


def usual_first(one: JudgedCause, breadth: Mapping[str, int]) -> tuple[object, ...]:
    """Sort key of possible causes: lines that suggest few causes come first, and of each line its usual causes. Lost
    connections, handled errors and causes against which the log speaks come last."""
    lines = [each for each in one.by if concerns(each, one.place)] or one.by
    told = min(
        (not (each.counts or each.id in ORDINARY), each.victim, rank_of(each), breadth[each.id], place_among(one, each))
        for each in lines
    )
    silent = {answer.word for question, answer in one.answers if question in one.cause.confirm} == {"no"}
    return (one.cause.restates, not one.proofs, silent, told, NEAREST.index(one.cause.scope))


def rank_of(line: Symptom) -> int:
    """Return 0 for a line that names a reason, 1 for a line that only names a failed library, 2 for an exit."""
    return 2 if line.id in symptoms.OTHERS else int(line.id in VAGUE)


def place_among(one: JudgedCause, line: Symptom) -> int:
    usual = USUAL.get(f"{line.id} 1" if line.about.get("sequence") == "1" else line.id, ())
    return usual.index(one.cause.id) if one.cause.id in usual else len(usual)


def follows(case: LaunchCase, symptom: Symptom) -> bool:
    """Return whether the symptom is a consequence of another rank's failure. Such a symptom suggests no other cause."""
    return symptom.victim and symptom.when >= first_own_end(case) > 0


@once
def first_own_end(case: LaunchCase) -> float:
    """Return when a rank first failed by itself; 0 if none did, or if the time is unknown."""
    return min((one.when for one in case.all_failures if one.rank is not None and not one.cascade), default=0.0)


def judge(case: LaunchCase, cause: Cause, place: CausePlace, by: tuple[Symptom, ...], ask: Ask) -> JudgedCause:
    questions = dict.fromkeys((*cause.confirm, *cause.support, *cause.refute))
    answers = tuple((question, ask(question, case, place)) for question in questions)
    said = JudgedCause(cause, place, POSSIBLE, answers, by)
    decisive = any(one.id in cause.decisive and one.counts and concerns(one, place) for one in by)
    asked = [answer for question, answer in answers if question in cause.confirm]
    proved = [question for question, _ in said.answered("yes", cause.confirm)]
    if said.answered("yes", cause.refute):
        word = RULED_OUT
    elif any(not question.by_words for question in proved):
        word = CONFIRMED
    elif decisive or proved or len(said.answered("yes", cause.support)) >= ENOUGH_SUPPORT:
        word = LIKELY
    elif asked and all(answer.word == "no" and (answer.source or not case.is_only_a_log) for answer in asked):
        word = RULED_OUT  # in a log alone, only by something that was seen
    else:
        word = POSSIBLE
    if word == CONFIRMED and case.is_only_a_log:
        word = LIKELY  # no node was checked
    return JudgedCause(cause, place, word, answers, by)


def concerns(symptom: Symptom, place: CausePlace) -> bool:
    """Return whether a symptom was seen at the place of the cause."""
    if place.rank is not None:
        return symptom.rank == place.rank
    return place.node in ("", symptom.node) or symptom.node == place.peer


def speaker(symptom: Symptom) -> str:
    rank = "" if symptom.rank is None else f"rank {symptom.rank}"
    return " on ".join(part for part in (rank, symptom.node) if part) or "an unknown node"


def without_explained(judged: Sequence[JudgedCause], by: Sequence[JudgedCause]) -> list[JudgedCause]:
    """Drop causes that another cause at the same place explains."""
    return [one for one in judged if not any(explains(other, one) for other in by if other is not one)]


def without_its_pairs(judged: Sequence[JudgedCause]) -> list[JudgedCause]:
    """Drop causes between two nodes if the same cause was found for one of the nodes as a whole."""
    whole = {(one.cause.id, one.place.node) for one in judged if one.place.node and not one.place.peer}
    return [
        one
        for one in judged
        if not one.place.peer or not {(one.cause.id, one.place.node), (one.cause.id, one.place.peer)} & whole
    ]


def once_a_pair(judged: Sequence[JudgedCause]) -> list[JudgedCause]:
    """Keep one of two causes between the same two nodes if the cause was found in both directions."""
    return list({(one.cause.id, frozenset(one.place[:2]), one.place[2:]): one for one in reversed(judged)}.values())[
        ::-1
    ]


def together(case: LaunchCase, judged: Sequence[JudgedCause]) -> list[JudgedCause]:
    """Replace a cause that was found on every node by one cause without a node, because all nodes have the same
    configuration."""
    found: dict[object, JudgedCause] = {}
    for one in judged:
        alike = [
            other
            for other in judged
            if other.cause is one.cause and other.place == one.place._replace(node=other.place.node)
        ]
        nodes = {other.place.node for other in alike}
        if len(nodes) > 1 and nodes == set(case.nodes):
            found[one.cause.id, one.place.what] = replace(one, place=one.place._replace(node=""), everywhere=True)
        else:
            found[one.cause.id, one.place] = one
    return list(found.values())


def explains(deeper: JudgedCause, one: JudgedCause) -> bool:
    if one.cause.id not in deeper.cause.instead_of:
        return False
    return not deeper.place.node or one.place.node in ("", deeper.place.node, deeper.place.peer)


def ordered(judged: Sequence[JudgedCause]) -> list[JudgedCause]:
    """Sort the causes by the number of symptoms they explain, then by start time, then by scope, from a single process
    to the cluster."""

    def key(one: JudgedCause) -> tuple[object, ...]:
        lines = {each.id for each in one.by}
        without_words = one.cause.restates and lines <= set(symptoms.OTHERS)
        return (without_words, one.cause.restates, -len(lines), one.since, NEAREST.index(one.cause.scope))

    return sorted(judged, key=key)
