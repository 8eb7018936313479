"""Public reports of failed distributed training with labels, and the score of the diagnosis on them.

The reports are in tests/unit/diagnosis/cases/reports, in two halves. open.yml is for development; closed.yml is for one
final score. The address of the source decides the half: `half_of`. second.yml and third.yml are later sets, which
were scored once before they were used for development. Fields of a report:

- source, tool, family: the address of the thread, the program that wrote the logs, and the kind of fault
- truth: the cause that the resolution in the thread gives
- inferred: the cause follows from what the thread shows; no reply that confirms it was read
- the label, one of:
  - causes: the ids of the causes that are right
  - outside: what failed outside the launch, such as access by SSH
  - missing: a cause that the catalogue does not contain
  - unknown: the log is not sufficient; the right answer is "unknown"
- names: for outside and missing, words that name the cause; the answer is right if it contains one of them
- accept: ids of causes that are true, but are not the cause that the resolution gives
- files: the logs by file name
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cases import document_of
from muster.diagnosis.words import CAUSE, NEXT_STEP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster.diagnosis.words import Diagnosis, SaidCause

FOLDER = Path(__file__).parent / "unit/diagnosis/cases/reports"
HALVES = ("open", "closed")
LATER = ("second", "third")  # sets
LABELS = ("causes", "outside", "missing", "unknown")
MOST_COUNTED = 3  # causes of an answer
SURE = ("confirmed", "likely")
# These causes repeat that a rank or launcher failed. They do not name the reason.
REPEATS = (
    "process.exception",
    "process.exception.everywhere",
    "process.exit",
    "process.launcher.failed",
)

Outcome = Literal["first", "in three", "not the cause", "unknown", "silent", "wrong"]
OUTCOMES: dict[Outcome, str] = {
    "first": "right cause first",
    "in three": "right cause second or third",
    "not the cause": "true, but not the cause",
    "unknown": "honest unknown",
    "silent": "silent",
    "wrong": "confidently wrong",
}

RUN = re.compile(r"\brun: (.+)$")
PLACEHOLDER = re.compile(r"\{\w*\}|<[A-Za-z][\w -]*>|\.\.\.")
UNKNOWN_PART = re.compile(r"not named in|node rank \d|every node|(?:[:=] ?|port )0\b")
VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
SET_BY_THE_SHELL = frozenset({"HOME", "USER", "PWD", "PATH"})
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")


@dataclass(frozen=True)
class Report:
    """A public report with its label. label: the kind of the label, one of LABELS."""

    source: str
    tool: str
    family: str
    truth: str
    label: str
    causes: tuple[str, ...]
    accept: tuple[str, ...]
    names: tuple[str, ...]
    files: Mapping[str, str]
    inferred: bool


@dataclass(frozen=True)
class Scored:
    """The score of one answer. shown: the ids of the causes in the answer, in order. refused: the commands that cannot
    be pasted, with the reason. vague: whether the next step contains a placeholder or an unknown node."""

    report: Report
    outcome: Outcome
    shown: tuple[str, ...]
    commands: tuple[str, ...]
    refused: tuple[str, ...]
    vague: bool


def half_of(source: str) -> str:
    """Return the half that a report belongs to. The rule was fixed before the search for reports."""
    return HALVES[hashlib.sha256(source.encode()).digest()[-1] % 2]


def reports_of(half: str) -> list[Report]:
    return [report_from(one) for one in document_of(FOLDER / f"{half}.yml")]


def report_from(one: Mapping[str, Any]) -> Report:
    """Return a report of a file. Raises ValueError if it has not exactly one label."""
    labels = [name for name in LABELS if name in one]
    if len(labels) != 1:
        raise ValueError(f"{one['source']}: exactly one of {', '.join(LABELS)} is required")
    return Report(
        source=one["source"],
        tool=one["tool"],
        family=one["family"],
        truth=one["truth"],
        label=labels[0],
        causes=tuple(one.get("causes", ())),
        accept=tuple(one.get("accept", ())),
        names=tuple(one.get("names", ())),
        files=one["files"],
        inferred=one.get("inferred", False),
    )


# ---------------------------------------------------------------- the score of one answer


def scored(report: Report, found: Diagnosis) -> Scored:
    commands = commands_in(found)
    context = "\n".join((*report.files, *report.files.values()))
    refused = tuple(f"{command} ({reason})" for command in commands if (reason := not_pasteable(command, context)))
    step = found["parts"][NEXT_STEP]
    vague = bool(PLACEHOLDER.search(step) or UNKNOWN_PART.search(step))
    shown = tuple(one["id"] for one in causes_in(found))
    return Scored(report, outcome(report, found), shown, commands, refused, vague)


def causes_in(found: Diagnosis) -> list[SaidCause]:
    """Return the causes of an answer in order, each id once."""
    return list({one["id"]: one for one in (*found["candidates"][::-1], *found["causes"][::-1])}.values())[::-1]


def outcome(report: Report, found: Diagnosis) -> Outcome:
    shown = causes_in(found)
    right = [is_right(report, one) for one in shown]
    sure = [one["id"] for one in found["causes"] if one["word"] in SURE]
    known = {*report.accept, *REPEATS, *(one["id"] for one, fits in zip(shown, right, strict=True) if fits)}
    if set(sure) - known:
        return "wrong"
    if any(right[:1]) or is_named(report, found, shown):
        return "first"
    if any(right[:MOST_COUNTED]):
        return "in three"
    if sure:
        return "not the cause"
    if report.label == "unknown":
        return "first"
    return "unknown" if shown else "silent"


def is_right(report: Report, one: SaidCause) -> bool:
    """Return whether a cause is the one of the label. A cause that repeats the exception contains its words, and does
    not name the reason."""
    if one["id"] in REPEATS:
        return one["id"] in report.causes
    return one["id"] in report.causes or names_it(report, one["says"])


def is_named(report: Report, found: Diagnosis, shown: Sequence[SaidCause]) -> bool:
    """Return whether an answer without a right cause names what failed: in its next step, or as its only sentence."""
    if any(one["id"] in REPEATS for one in found["causes"]):
        return False
    return names_it(report, found["parts"][NEXT_STEP]) or (not shown and names_it(report, found["parts"][CAUSE]))


def names_it(report: Report, text: str) -> bool:
    return any(name in text.lower() for name in report.names)


# ---------------------------------------------------------------- commands


def commands_in(found: Diagnosis) -> tuple[str, ...]:
    """Return the commands of an answer: those of its causes and candidates, and the one of its next step."""
    causes = (*found["causes"], *found["also_seen"], *found["candidates"])
    commands = [command for one in causes if (command := one["fix"].get("command"))]
    step = RUN.search(found["parts"][NEXT_STEP])
    return tuple(dict.fromkeys([*commands, *([step[1]] if step else [])]))


def not_pasteable(command: str, context: str) -> str:
    """Return why a command cannot be pasted; "" if it can. context: the names and texts of the logs, which contain
    every host and address that a command may name."""
    try:
        words = shlex.split(command)
    except ValueError as problem:
        return str(problem)
    if found := PLACEHOLDER.search(command):
        return f"placeholder {found[0]}"
    if "" in words or (found := UNKNOWN_PART.search(command)):
        return "unknown part"
    unset = {name for name in VARIABLE.findall(command) if f"{name}=" not in command} - SET_BY_THE_SHELL
    strangers = [one for one in ADDRESS.findall(command) if one not in context]
    if words[:1] == ["ansible"] and words[1:2] and words[1] not in context:
        strangers.append(words[1])
    if unset or strangers:
        return f"undefined: {', '.join((*sorted(unset), *strangers))}"
    return ""


# ---------------------------------------------------------------- the score of a half


def summary(all_scored: Sequence[Scored]) -> dict[str, Any]:
    """Return the numbers of a half, and the number of right first causes by family."""
    outcomes = Counter(one.outcome for one in all_scored)
    families = Counter(one.report.family for one in all_scored)
    first = Counter(one.report.family for one in all_scored if one.outcome == "first")
    return {
        "reports": len(all_scored),
        **{name: outcomes[name] for name in OUTCOMES},
        "among three": outcomes["first"] + outcomes["in three"],
        "commands": sum(len(one.commands) for one in all_scored),
        "not pasteable": sum(len(one.refused) for one in all_scored),
        "need an inventory": sum(command.startswith("ansible") for one in all_scored for command in one.commands),
        "vague next steps": sum(one.vague for one in all_scored),
        "families": {name: f"{first[name]} of {families[name]}" for name in sorted(families)},
    }


def each(all_scored: Sequence[Scored]) -> list[dict[str, Any]]:
    return [
        {
            "source": one.report.source,
            "family": one.report.family,
            "label": one.report.causes or one.report.label,
            "outcome": one.outcome,
            "shown": one.shown[:MOST_COUNTED],
            "not pasteable": one.refused,
        }
        for one in all_scored
    ]


def table(all_scored: Sequence[Scored], *, details: bool) -> str:
    found = summary(all_scored)
    lines = [f"{found['reports']} reports"]
    lines += [f"{found[name]:4}  {text}" for name, text in OUTCOMES.items()]
    lines += [f"{found['among three']:4}  right cause among the first three", ""]
    lines += [
        f"{found['commands']} commands",
        f"{found['not pasteable']:4}  cannot be pasted",
        f"{found['need an inventory']:4}  need an inventory",
        f"{found['vague next steps']} next steps with a placeholder or an unknown node",
        "",
        "right cause first, by family:",
    ]
    lines += [f"  {name}: {text}" for name, text in found["families"].items()]
    if details:
        lines.append("")
        for one in all_scored:
            label = ", ".join(one.report.causes) or one.report.label
            lines.append(f"{one.outcome}: {one.report.source}")
            lines.append(f"    label: {label}; shown: {', '.join(one.shown[:MOST_COUNTED]) or 'nothing'}")
            lines += [f"    not pasteable: {text}" for text in one.refused]
    return "\n".join(lines)


def as_json(half: str, all_scored: Sequence[Scored], *, details: bool) -> str:
    shown = {"half": half, **summary(all_scored)}
    if details:
        shown["each"] = each(all_scored)
    return json.dumps(shown, ensure_ascii=False, indent=2)
