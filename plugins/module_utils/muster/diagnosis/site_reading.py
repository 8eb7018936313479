"""Parses a site's rule files, or reports all their problems with line numbers.

A rule file may refer only to its own entries and to built-in ones. Ids must be unique across all files.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from ..inventory.model import Problem
from . import facts, symptoms
from .causes import CAUSES
from .causes.process import every_node, ranks_shown
from .evidence import Text
from .model import Cause, CausePlace, Group, Question, Scope
from .questions import probe
from .site_rules import Command, Rules, answered_by, together
from .texts import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .case import LaunchCase
    from .model import Places, Symptom

    # (part, number of the entry from 1 on, key of the entry) -> line.
    Lines = Mapping[tuple[str | int, ...], int]

OURS = re.compile(r"site(?:\.[a-z][a-z0-9_]*)+")
PLACEHOLDER = re.compile(r"\{(\w*)\}")
NAMES = ("node", "peer", "rank", "what", "address", "port")
MOST_SECONDS = 10.0
MOST_WORDS, MOST_WORD = 64, 1000  # of a command
# These programs require privileges that a diagnosis does not have.
ROOT = ("sudo", "su", "doas", "pkexec", "run0", "ansible")
KEYS: dict[str, dict[str, Any]] = {
    "texts": {"id": str, "pattern": str, "means": str, "example": str, "victim": bool},
    "questions": {
        "id": str,
        "asks": str,
        "fact": str,
        "finding": str,
        "command": list,
        "seconds": facts.NUMBER,
        "code": int,
        **facts.TESTS,
    },
    "causes": {
        **dict.fromkeys(("id", "group", "scope", "says", "fix", "places"), str),
        **dict.fromkeys(("symptoms", "confirm", "support", "refute", "decisive", "instead_of"), list),
    },
}
NEEDED = {
    "texts": ("id", "pattern", "means", "example"),
    "questions": ("id", "asks"),
    "causes": ("id", "group", "scope", "says", "fix", "symptoms"),
}
REFERRING = ("confirm", "support", "refute")
KINDS = ("fact", "finding", "command")


class RuleFile(NamedTuple):
    """A rule file of a site. name: shown in messages. holds: the parsed YAML. lines: line numbers, starting at 1, as
    far as known."""

    name: str
    holds: Any
    lines: Lines = MappingProxyType({})


class Spot(NamedTuple):
    """A position in a rule file."""

    part: str
    number: int = 0
    id: str = ""

    def __str__(self) -> str:
        return f"{self.part}{f' {self.number}' if self.number else ''}{f' ({self.id})' if self.id else ''}"


def rules_of(files: Sequence[RuleFile]) -> tuple[Rules, list[Problem]]:
    """Return the rules of all files, and all problems. If there is a problem, no rules are returned."""
    ids: dict[str, str] = {}
    readings = [Reading(file.name, file.lines, ids) for file in files]
    found = [reading.rules(file.holds) for reading, file in zip(readings, files, strict=True)]
    problems = [problem for reading in readings for problem in reading.problems]
    return (Rules(), problems) if problems else (together(found), [])


@dataclass
class Reading:
    """Parses one file. taken: where each id was defined, over all files."""

    file: str
    lines: Lines
    taken: dict[str, str]
    problems: list[Problem] = field(default_factory=list)
    ids: dict[str, frozenset[str]] = field(default_factory=dict)

    def wrong(self, spot: Spot, what: str, fix: str, key: str = "") -> None:
        """Record a problem. key: the key of the entry that is wrong."""
        self.problems.append(Problem(self.at(spot, key), what, fix))

    def at(self, spot: Spot, key: str = "") -> str:
        ways = ((spot.part, spot.number, key), (spot.part, spot.number), (spot.part,))
        line = next((self.lines[way] for way in ways if way in self.lines), 0)
        return f"{self.file} line {line}, {spot}" if line else f"{self.file}, {spot}"

    def rules(self, given: Any) -> Rules:
        if not isinstance(given, dict):
            self.problems.append(Problem(self.file, "not a YAML mapping", f"Begin with one of {', '.join(KEYS)}"))
            return Rules()
        for name in given:
            if name not in KEYS:
                meant = near(str(name), KEYS)
                self.wrong(Spot(str(name)), f"unknown section{meant}", "Correct the name")
        entries = {part: list(self.entries(part, given.get(part) or [])) for part in KEYS}
        self.twice(entries)
        self.ids = {part: ids_in(given.get(part)) for part in KEYS}
        texts = tuple(filter(None, (self.text(spot, one) for spot, one in entries["texts"])))
        commands: list[Command] = []
        questions = {one["id"]: self.question(spot, one, commands) for spot, one in entries["questions"]}
        known = frozenset({one.id for one in TEXTS} | set(symptoms.OTHERS) | self.ids["texts"])
        ids = frozenset({cause.id for cause in CAUSES} | self.ids["causes"])
        causes = tuple(filter(None, (self.cause(spot, one, questions, known, ids) for spot, one in entries["causes"])))
        return Rules(texts, causes, tuple(commands))

    def entries(self, part: str, given: Any) -> Iterator[tuple[Spot, dict[str, Any]]]:
        """Yield the valid entries of a section, with their positions."""
        if not isinstance(given, list):
            self.wrong(Spot(part), "this section is not a list", "Begin each entry with a dash")
            return
        for number, one in enumerate(given, 1):
            spot = Spot(part, number)
            if not isinstance(one, dict):
                self.wrong(spot, "this entry is not a mapping", f"Set {', '.join(NEEDED[part])}")
                continue
            before = len(self.problems)
            spot = Spot(part, number, one["id"]) if isinstance(one.get("id"), str) else spot
            self.keys(spot, one)
            if len(self.problems) == before:
                yield spot, one

    def keys(self, spot: Spot, one: Mapping[Any, Any]) -> None:
        kinds = KEYS[spot.part]
        for name, value in one.items():
            if name not in kinds:
                meant = near(str(name), kinds)
                self.wrong(spot, f"unknown key {name}{meant}", "Correct or remove it", name)
            elif not is_of(value, kinds[name]):
                self.wrong(spot, f"{name} has the wrong type", f"Set it to {facts.named(kinds[name])}", name)
            elif isinstance(value, list) and not all(isinstance(each, str) for each in value):
                self.wrong(spot, f"{name} contains an entry that is not a string", "Quote each entry", name)
        for name in NEEDED[spot.part]:
            if name not in one:
                self.wrong(spot, f"{name} is missing", f"Add {name}")
        if isinstance(one.get("id"), str) and not OURS.fullmatch(one["id"]):
            fix = "Use an id such as site.storage_gone"
            self.wrong(spot, "the id is not `site.` followed by lower-case names", fix, "id")
        for name in ("says", "fix", "asks"):
            for word in PLACEHOLDER.findall(str(one.get(name, ""))):
                if word not in NAMES:
                    what = f"{name} has the unknown placeholder {{{word}}}{near(word, NAMES)}"
                    self.wrong(spot, what, f"Use one of {', '.join(NAMES)} in the braces", name)

    def twice(self, entries: Mapping[str, list[tuple[Spot, dict[str, Any]]]]) -> None:
        for all_of in entries.values():
            for spot, one in all_of:
                if one["id"] in self.taken:
                    self.wrong(spot, f"duplicate id, also used in {self.taken[one['id']]}", "Use unique ids", "id")
                self.taken[one["id"]] = self.at(spot, "id")

    def text(self, spot: Spot, one: Mapping[str, Any]) -> Text | None:
        try:
            pattern = re.compile(one["pattern"])
        except re.error as exc:
            self.wrong(spot, f"the pattern is not a valid regular expression ({exc})", "Correct it", "pattern")
            return None
        if not pattern.search(one["example"]):
            self.wrong(spot, "the pattern does not match the example", "Correct either one", "pattern")
        if pattern.search(""):
            self.wrong(spot, "the pattern matches every line", "Make it more specific", "pattern")
        return Text(
            one["id"], one["pattern"], one["means"], one["example"], self.file, victim=bool(one.get("victim", False))
        )

    def question(self, spot: Spot, one: Mapping[str, Any], commands: list[Command]) -> Question:
        kinds = [kind for kind in KINDS if kind in one]
        if len(kinds) != 1:
            self.wrong(spot, f"{' and '.join(kinds) or 'no source'} set", f"Set exactly one of {words(KINDS)}")
        elif kinds[0] == "command":
            commands.append(self.command(spot, one))
            return answered_by(commands[-1], one["asks"])
        elif kinds[0] == "fact" and (problem := facts.problem_of(one["fact"], one)):
            self.wrong(spot, *problem, "fact")
        elif kinds[0] == "fact":
            return Question(one["id"], one["asks"], facts.asks(one["fact"], one))
        return probe(one.get("finding", one["id"]), one["asks"])

    def command(self, spot: Spot, one: Mapping[str, Any]) -> Command:
        argv, seconds = tuple(one["command"]), float(one.get("seconds", MOST_SECONDS / 2))
        if not argv or not argv[0]:
            fix = "Set a list of words, such as [findmnt, /storage]"
            self.wrong(spot, "the command is empty", fix, "command")
        elif (program := argv[0].rpartition("/")[2]) in ROOT:
            fix = "Commands run without root: check something that every user can read"
            self.wrong(spot, f"the command runs {program}", fix, "command")
        for word in argv:
            if len(word) > MOST_WORD or not word.isprintable() or len(argv) > MOST_WORDS:
                fix = "Install a script on the nodes and run the script"
                self.wrong(spot, "the command is too long or contains control characters", fix, "command")
                break
            if named := next((name for name in PLACEHOLDER.findall(word) if name in NAMES), ""):
                fix = "Remove the placeholder: a command checks the node on which it runs"
                self.wrong(spot, f"the command has the placeholder {{{named}}}", fix, "command")
        if not 0 < seconds <= MOST_SECONDS:
            self.wrong(spot, f"seconds is {seconds:g}", f"Set it to at most {MOST_SECONDS:g}", "seconds")
        if "code" not in one and "matches" not in one:
            self.wrong(spot, "the command does not define which result means yes", "Set code or matches", "command")
        if problem := facts.pattern_problem(one):
            self.wrong(spot, *problem, "matches")
        return Command(one["id"], argv, seconds, one.get("code"), one.get("matches", ""))

    def cause(
        self,
        spot: Spot,
        one: Mapping[str, Any],
        questions: Mapping[str, Question],
        known: frozenset[str],
        ids: frozenset[str],
    ) -> Cause | None:
        choices = {"group": get_args(Group), "scope": get_args(Scope), "places": tuple(PLACES)}
        for name, words_of in choices.items():
            value = one.get(name, "nodes")
            if value not in words_of:
                fix = f"Set it to one of {', '.join(words_of)}"
                self.wrong(spot, f"{name} is {value}{near(value, words_of)}", fix, name)
        named = {known: ("symptoms", "decisive"), ids: ("instead_of",), self.ids["questions"]: REFERRING}
        for there, names in named.items():
            for name in names:
                for each in one.get(name, []):
                    if each not in there:
                        self.wrong(spot, f"{name} has the unknown id {each}{near(each, there)}", "Correct it", name)
        if not one["symptoms"]:
            fix = "Add a symptom: a cause must be visible in the launch"
            self.wrong(spot, "the cause has no symptom", fix, "symptoms")
        if not any(one.get(name) for name in ("confirm", "support", "decisive")):
            self.wrong(spot, "nothing can confirm the cause", "Set confirm, support or decisive")
        if self.problems:  # then there are no rules at all
            return None
        return Cause(
            one["id"],
            group=one["group"],
            scope=one["scope"],
            says=one["says"],
            fix=one["fix"],
            symptoms=tuple(one["symptoms"]),
            places=PLACES[one.get("places", "nodes")],
            confirm=tuple(questions[each] for each in one.get("confirm", [])),
            support=tuple(questions[each] for each in one.get("support", [])),
            refute=tuple(questions[each] for each in one.get("refute", [])),
            decisive=tuple(one.get("decisive", [])),
            instead_of=tuple(one.get("instead_of", [])),
        )


def is_of(value: Any, kind: Any) -> bool:
    """Return whether a value has one of these types. Booleans do not count as numbers."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return type(value) in kinds


def ids_in(entries: Any) -> frozenset[str]:
    """Return the ids in a section. The ids of invalid entries are included, so that references to these entries are not
    reported as well."""
    known = entries if isinstance(entries, list) else []
    return frozenset(one["id"] for one in known if isinstance(one, dict) and isinstance(one.get("id"), str))


def near(word: str, names: Iterable[str]) -> str:
    meant = difflib.get_close_matches(word, sorted(names), 1)
    return f" (did you mean {meant[0]}?)" if meant else ""


def words(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


# ---------------------------------------------------------------- places of causes


def nodes_that_showed(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node, what=one.line) for one in by if one.node and not one.victim and one.final)


def no_node(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    if any(one.final for one in by):
        yield CausePlace()


PLACES: dict[str, Places] = {
    "ranks": ranks_shown,
    "nodes": nodes_that_showed,
    "every_node": every_node,
    "no_node": no_node,
}
