"""Site rules: texts, questions and causes in a YAML file, with the same structure as the built-in ones.

    texts:
      - {id: site.storage_gone, pattern: "StorageError: lost (?P<name>\\w+)", means: the storage is gone, example: ...}
    questions:
      - {id: site.refused, asks: "were tasks refused on {node}?", fact: record.unit.pids_refused, grew: 1}
      - {id: site.found, asks: "was it found on {node}?", finding: os.disk.errors}
      - {id: site.mounted, asks: "is it not mounted on {node}?", command: [findmnt, /storage], seconds: 5, code: 1}
    causes:
      - {id: site.storage, group: resources, scope: node, says: ..., fix: ..., symptoms: [site.storage_gone],
         places: nodes, confirm: [site.mounted]}

A fact is a path in the shapes of evidence.py. It begins with record (a node's newest record), start, end, snapshot or
rank; `*` stands for every entry of a list. A command is a list of words. It runs without a shell and without root, for
some seconds, and only if the site allows it. Its answer is kept as a finding, so that a case can be replayed.

site_reading.py parses the files.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ..verdict.commands import OnNode
from ..verdict.printable import printable
from .case import LaunchCase
from .causes import CAUSES
from .decide import decide, plainly
from .model import Question, no, not_looked, yes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..verdict.finding import FindingShape
    from .decide import Decided
    from .evidence import CaseShape, Text
    from .model import Cause, CauseAnswer, CausePlace

NOT_RUN = "the command runs only right after a failure, and only with diagnose_rules_commands: true"
MOST_SHOWN, MOST_WHY = 200, 400  # characters of a command's output, and of the reason why it has none


class Command(NamedTuple):
    """A command to run on a node, and the answer that counts as yes. argv: the words of the command, which runs without
    a shell."""

    question: str
    argv: tuple[str, ...]
    seconds: float
    code: int | None
    matches: str


class SiteQuestion(NamedTuple):
    """A command to run on one node."""

    node: str
    command: Command


@dataclass
class Answers:
    """The answers that commands returned. CaseShape describes the fields."""

    findings: list[FindingShape] = field(default_factory=list)
    ran: dict[str, list[str]] = field(default_factory=dict)
    unanswered: dict[str, dict[str, str]] = field(default_factory=dict)

    def take(self, one: SiteQuestion, code: int | None, output: str, why: str) -> None:
        """Record the answer of one command. code: None if the command timed out. why: the reason if the command did not
        run."""
        ran, found = read_answer(one, code, output)
        if ran:
            self.ran.setdefault(one.node, []).append(ran)
            self.findings += [found] if found else []
        else:
            self.leave(one, why or f"{one.command.argv[0]} did not run")

    def leave(self, one: SiteQuestion, why: str) -> None:
        said = printable(f"{one.node}: {why}")[:MOST_WHY]
        self.unanswered.setdefault(one.node, {})[one.command.question] = said

    def joined_to(self, seen: CaseShape) -> CaseShape:
        nodes = {**seen["ran"], **self.ran}
        return {
            **seen,
            "findings": [*seen["findings"], *self.findings],
            "ran": {name: [*seen["ran"].get(name, []), *self.ran.get(name, [])] for name in nodes},
            "unanswered": self.unanswered,
        }


@dataclass(frozen=True)
class Rules:
    """The rules of a site's files, if they have no problems."""

    texts: tuple[Text, ...] = ()
    causes: tuple[Cause, ...] = ()
    commands: tuple[Command, ...] = ()

    def of(self, seen: CaseShape) -> LaunchCase:
        """Return the case, extended by the site's texts."""
        return LaunchCase(seen, self.texts)

    @property
    def all_causes(self) -> tuple[Cause, ...]:
        return (*CAUSES, *self.causes)


def replayed(rules: Rules, seen: CaseShape) -> tuple[Decided, Decided]:
    """Evaluate a recorded case once without and once with these rules."""
    return decide(LaunchCase(seen), CAUSES), decide(rules.of(seen), rules.all_causes)


# ---------------------------------------------------------------- commands


def answered_by(command: Command, asks: str) -> Question:
    """Return a question whose answer is a command's recorded finding, or "not looked" if the command did not run."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        nodes = nodes_of(case, place)
        for node in nodes:
            for found in case.findings(command.question, node):
                return yes(found["summary"], f"{command.argv[0]} on {node}")
        silent = [node for node in nodes if command.question not in case.seen["ran"].get(node, ())]
        if not silent:
            return no("the command answered no", f"{command.argv[0]} on {', '.join(nodes)}")
        why = case.seen.get("unanswered", {}).get(silent[0], {}).get(command.question, "")
        return not_looked(why or case.seen["not_looked"].get(silent[0], NOT_RUN))

    return Question(command.question, asks, look, OnNode(shlex.join(command.argv)))


def nodes_of(case: LaunchCase, place: CausePlace) -> list[str]:
    """Return the nodes where a command runs to answer a question about a place. If the place names no node, return all
    nodes of the launch."""
    node = place.node or (case.node_of(place.rank) if place.rank is not None else "")
    return [node] if node else case.nodes


def open_questions(rules: Rules, case: LaunchCase) -> list[tuple[str, CausePlace]]:
    """Return (question id, place) of the candidate causes' questions that the evidence does not answer yet."""
    found: dict[tuple[str, CausePlace], None] = {}

    def ask(question: Question, case: LaunchCase, place: CausePlace) -> CauseAnswer:
        answer = plainly(question, case, place)
        if answer.word == "not looked":
            found[question.id, place] = None
        return answer

    decide(case, rules.all_causes, ask)
    return list(found)


def asked(rules: Rules, case: LaunchCase, questions: Iterable[tuple[str, CausePlace]]) -> list[SiteQuestion]:
    """Return the commands that answer these open questions. The caller checks that the site allows commands."""
    commands = {command.question: command for command in rules.commands}
    found = (
        SiteQuestion(node, commands[name])
        for name, place in questions
        if name in commands
        for node in nodes_of(case, place)
    )
    return list(dict.fromkeys(found))


def read_answer(one: SiteQuestion, code: int | None, output: str) -> tuple[str, FindingShape | None]:
    """Return (id, finding): the id of the check, or "" if the check did not run, and a finding if the answer is yes.
    code: None if the command timed out."""
    command = one.command
    if code is None or code in (126, 127):  # not executable, or not found
        return "", None
    by_code = command.code is None or code == command.code
    by_words = not command.matches or re.search(command.matches, output) is not None
    if not (by_code and by_words):
        return command.question, None
    summary = f"{command.argv[0]} exited with code {code}"
    lines = (printable(line.strip()) for line in output.splitlines())
    first = next((line for line in lines if line), "")
    said = f"{summary}: {first[:MOST_SHOWN]}" if first else summary
    found: FindingShape = {
        "id": command.question,
        "status": "warn",
        "node": one.node,
        "summary": said,
    }
    return command.question, found


def together(all_of: Iterable[Rules]) -> Rules:
    """Merge the rules of several files."""
    known = list(all_of)
    return Rules(
        tuple(text for one in known for text in one.texts),
        tuple(cause for one in known for cause in one.causes),
        tuple(command for one in known for command in one.commands),
    )
