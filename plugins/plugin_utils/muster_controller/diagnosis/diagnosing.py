"""Diagnoses a supervised launch right after it failed: gathers evidence, determines the cause, and writes artifacts.

A diagnosis changes nothing on nodes. If the diagnosis fails, a warning is printed and the verdict of the launch remains
unchanged.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from muster.diagnosis.decide import decide
from muster.diagnosis.findings import with_diagnosis
from muster.diagnosis.launched import Gathered, case_shape, involved
from muster.diagnosis.site_rules import asked, open_questions
from muster.diagnosis.words import NEXT_STEP, diagnosis, lines_of
from muster.launch.endings import has_failed
from muster.net_probe.quality import SLOW_STREAM
from muster_controller.artifacts.runs import write_json
from muster_controller.nodes.messages import Messages
from muster_controller.playbook.interruption import Interruption
from muster_controller.playbook.terminal import typed

from .afterwards import LOST, SECONDS, Afterwards
from .rule_files import NO_RULES, SiteRules
from .site_questions import PROGRAM, SiteQuestions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from muster.diagnosis.case import LaunchCase
    from muster.diagnosis.evidence import CaseShape
    from muster.diagnosis.site_rules import SiteQuestion
    from muster.diagnosis.words import Diagnosis
    from muster.launch.outcome import LaunchRecord
    from muster.verdict.finding import Verdict
    from muster.verdict.redaction import Redaction
    from muster_controller.artifacts.keeping import Keeping
    from muster_controller.launch.supervisor import Supervisor

PROBES = "probe"  # prefix of questions that a check after the failure can answer
PATHS = "path."  # prefix of questions about a path
SPEED = f"{PROBES}.{SLOW_STREAM.id}"


class Diagnosed(NamedTuple):
    """A diagnosis, and the verdict of the launch with the findings of this diagnosis."""

    said: Diagnosis
    verdict: Verdict


def failed(record: LaunchRecord) -> bool:
    return record.decision is not None and has_failed(record.decision.ending)


class Diagnosing:
    """One diagnosis of a finished launch."""

    def __init__(
        self,
        supervisor: Supervisor,
        redaction: Redaction,
        say: Callable[[str], None],
        site: SiteRules = NO_RULES,
    ) -> None:
        self.supervisor = supervisor
        self.redaction = redaction
        self.say = say
        self.site = site

    def diagnose(
        self, record: LaunchRecord, verdict: Verdict, folder: Path, keeping: Keeping | None
    ) -> Diagnosed | None:
        """Return the diagnosis. If the diagnosis fails, warn and return None. keeping: None if another supervisor
        writes the files."""
        with (interruption := Interruption()):
            try:
                case = self.gathered(record, lambda: interruption.came)
                decided = decide(case, self.site.rules.all_causes)
                said: Diagnosis = self.redaction.shape(diagnosis(case, decided))
                joined: Verdict = self.redaction.shape(with_diagnosis(verdict, case, decided, said))
            except Exception as exc:  # whatever it is, the launch's own verdict stands
                self.say(f"Could not diagnose the failed launch ({type(exc).__name__}: {exc})")
                return None
        if keeping:
            keep(folder, case.seen, said, keeping)
        return Diagnosed(said, joined)

    def gathered(self, record: LaunchRecord, give_up: Callable[[], bool]) -> LaunchCase:
        """Return the case. If the evidence leaves questions open, check the nodes."""
        gathered = recorded(self.supervisor)
        epoch = time.time() - time.monotonic()
        timeout = float(self.supervisor.options.rendezvous_timeout)

        def so_far() -> CaseShape:
            return self.covered(case_shape(record, gathered, epoch, timeout, live=False))

        case = self.site.rules.of(so_far())
        questions = open_questions(self.site.rules, case)
        if not questions:
            return case
        lost = {report.node: report.lost_why or LOST for report in record.reports if report.lost}
        until = time.monotonic() + SECONDS
        under_way = self.site_questions(asked(self.site.rules, case, questions), record, lost)
        looks = Afterwards(record.plan, involved(record), self.supervisor.messages, give_up, lost)
        looks.paths(gathered, [place.what for name, place in questions if name.startswith(PATHS)])
        if any(name.startswith(PROBES) for name, _ in questions):
            looks.look(gathered, live=False, speed=any(name == SPEED for name, _ in questions))
        seen = so_far()
        if under_way:
            seen = self.covered(under_way.gather(until, give_up).joined_to(seen))
            under_way.messages.close()
        return self.site.rules.of(seen)

    def site_questions(
        self, questions: Sequence[SiteQuestion], record: LaunchRecord, lost: Mapping[str, str]
    ) -> SiteQuestions | None:
        """Start the commands of site rules over separate connections, so that the commands do not delay other checks.
        Return None if there are no commands, or if the site does not allow them."""
        if not questions or not self.site.commands:
            return None
        connections = self.supervisor.snapshots.connections
        names = {one.node for one in questions} & set(involved(record)) & set(connections)
        messages = Messages({name: connections[name].beside() for name in names}, PROGRAM)
        messages.open()
        under_way = SiteQuestions(messages, names, record.plan.user, lost)
        under_way.ask(questions)
        return under_way

    def covered(self, shape: CaseShape) -> CaseShape:
        found: CaseShape = self.redaction.shape(shape)
        return found


def recorded(supervisor: Supervisor) -> Gathered:
    """Return what the nodes recorded during the launch."""
    known = supervisor.evidence
    return Gathered(dict(known.start), dict(known.end), dict(known.snapshots), key=known.key)


def keep(folder: Path, evidence: CaseShape, said: Diagnosis, keeping: Keeping) -> None:
    parts = {**said["parts"], NEXT_STEP: typed(said["parts"][NEXT_STEP])}
    shown = {**said, "lines": lines_of(parts), "parts": parts}
    for name, content in (("evidence.json", evidence), ("diagnosis.json", shown)):
        path = folder / name
        keeping.surely(path, partial(write_json, path, content))
