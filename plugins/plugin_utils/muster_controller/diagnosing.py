"""The diagnosis of a launch that Muster saw through: gathered while its nodes are as it left them, decided and kept.

It changes nothing, and takes nothing from the launch's own verdict: one that fails is a sentence.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from muster.diagnosis.case import Case
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide, plainly
from muster.diagnosis.findings import with_diagnosis
from muster.diagnosis.launched import Gathered, case_shape, involved
from muster.diagnosis.words import diagnosis
from muster.launch.endings import Ending

from .afterwards import Afterwards
from .interruption import Interruption
from .json_file import write_json
from .terminal import typed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from muster.diagnosis.evidence import CaseShape
    from muster.diagnosis.model import Answer, Place, Question
    from muster.diagnosis.words import Diagnosis
    from muster.launch.outcome import Record
    from muster.verdict.finding import Verdict
    from muster.verdict.redaction import Redaction

    from .keeping import Keeping
    from .supervisor import Supervisor

PROBES = "probe"  # the beginning of questions that a look afterwards can answer
# A launch that ended well, or by somebody's word, or that goes on, has nothing to be explained.
NOT_FAILED = {Ending.FINISHED, Ending.INTERRUPTED, Ending.DETACHED, Ending.TAKEN}


class Diagnosed(NamedTuple):
    """verdict: that of the launch, with what the diagnosis adds."""

    said: Diagnosis
    verdict: Verdict


def failed(record: Record) -> bool:
    return record.decision is not None and record.decision.ending not in NOT_FAILED


class Diagnosing:
    """One diagnosis of a launch that is over."""

    def __init__(self, supervisor: Supervisor, redaction: Redaction, say: Callable[[str], None]) -> None:
        self.supervisor = supervisor
        self.redaction = redaction
        self.say = say

    def diagnose(self, record: Record, verdict: Verdict, folder: Path, keeping: Keeping | None) -> Diagnosed | None:
        """None where it fails, of which a sentence is said. keeping: None where another supervisor keeps the folder."""
        with (interruption := Interruption()):
            try:
                case = self.gathered(record, lambda: interruption.came)
                decided = decide(case, CAUSES)
                said: Diagnosis = self.redaction.shape(diagnosis(case, decided))
                joined: Verdict = self.redaction.shape(with_diagnosis(verdict, case, decided, said))
            except Exception as exc:  # whatever it is, the launch's own verdict stands
                self.say(f"Why the launch failed could not be diagnosed ({type(exc).__name__}: {exc})")
                return None
        if keeping:
            keep(folder, case.seen, said, keeping)
        return Diagnosed(said, joined)

    def gathered(self, record: Record, give_up: Callable[[], bool]) -> Case:
        """The case, with looks afterwards where their answer may tell more."""
        gathered = recorded(self.supervisor)
        epoch = time.time() - time.monotonic()
        timeout = float(self.supervisor.settings.rendezvous_timeout)
        case = Case(self.covered(case_shape(record, gathered, epoch, timeout, live=False)))
        if not asks_for_looks(case):
            return case
        lost = {report.node: report.lost_why for report in record.reports if report.lost}
        looks = Afterwards(record.plan, involved(record), self.supervisor.messages, give_up, lost)
        looks.look(gathered, live=False)
        return Case(self.covered(case_shape(record, gathered, epoch, timeout, live=False)))

    def covered(self, shape: CaseShape) -> CaseShape:
        found: CaseShape = self.redaction.shape(shape)
        return found


def recorded(supervisor: Supervisor) -> Gathered:
    """What the nodes recorded while it ran."""
    known = supervisor.evidence
    return Gathered(dict(known.start), dict(known.end), dict(known.snapshots), key=known.key)


def asks_for_looks(case: Case) -> bool:
    """Whether any cause that fits has a question that only a look afterwards can answer."""
    asked: set[str] = set()

    def ask(question: Question, case: Case, place: Place) -> Answer:
        answer = plainly(question, case, place)
        if answer.word == "not looked":
            asked.add(question.id)
        return answer

    decide(case, CAUSES, ask)
    return any(one.startswith(PROBES) for one in asked)


def keep(folder: Path, evidence: CaseShape, said: Diagnosis, keeping: Keeping) -> None:
    # What is to be typed is the last of them.
    shown = {**said, "lines": [*said["lines"][:-1], typed(said["lines"][-1])]}
    for name, content in (("evidence.json", evidence), ("diagnosis.json", shown)):
        path = folder / name
        keeping.surely(path, partial(write_json, path, content))
