"""A site's own rules: texts, questions and causes in a file of YAML, of the same kind as those that are built in.

    texts:
      - {id: site.storage_gone, pattern: "StorageError: lost (?P<name>\\w+)", means: the storage is gone, example: ...}
    questions:
      - {id: site.refused, asks: "were tasks refused on {node}?", fact: record.unit.pids_refused, grew: 1}
      - {id: site.found, asks: "was it found on {node}?", finding: os.disk.errors}
      - {id: site.mounted, asks: "is it not mounted on {node}?", command: [findmnt, /storage], seconds: 5, code: 1}
    causes:
      - {id: site.storage, group: resources, scope: node, says: ..., fix: ..., symptoms: [site.storage_gone],
         places: nodes, confirm: [site.mounted]}

A fact is a path in what evidence.py describes, which begins with record (a node's newest), start, end, snapshot or
rank; `*` stands for every entry of a list. A command is a list of words, runs without a shell and without rights, for
some seconds, and only where the site allows it. What it answered is kept as a finding, so that a case can be replayed.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from ..inventory.model import Problem
from . import facts, symptoms
from .case import Case
from .causes import CAUSES
from .causes.process import every_node, ranks_shown
from .decide import decide
from .model import Cause, Group, Place, Question, Scope, Text
from .questions import probe
from .texts import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..verdict.finding import FindingShape
    from .decide import Decided
    from .evidence import CaseShape
    from .model import Places, Symptom

OURS = re.compile(r"site(?:\.[a-z][a-z0-9_]*)+")
PLACEHOLDER = re.compile(r"\{(\w*)\}")
NAMES = ("node", "peer", "rank", "what", "address", "port")
MOST_SECONDS = 10.0
# Whoever needs these needs rights that a diagnosis does not have.
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


class Command(NamedTuple):
    """What is to be run on a node, and how its answer is read. argv: run as it stands, by no shell."""

    question: str
    argv: tuple[str, ...]
    seconds: float
    code: int | None
    matches: str


class Asked(NamedTuple):
    """A command for one node."""

    node: str
    command: Command


@dataclass(frozen=True)
class Rules:
    """What a file of a site says, where nothing of it is wrong."""

    texts: tuple[Text, ...] = ()
    causes: tuple[Cause, ...] = ()
    commands: tuple[Command, ...] = ()


def rules_of(given: Any, file: str) -> tuple[Rules, list[Problem]]:
    """The rules, and all that is wrong with them; with a problem there are no rules. given: what the YAML holds."""
    reading = Reading(file)
    rules = reading.rules(given)
    return (Rules(), reading.problems) if reading.problems else (rules, [])


# ---------------------------------------------------------------- commands


def asked(rules: Rules, nodes: Iterable[str]) -> list[Asked]:
    """What is to be run where, for the questions of these rules. Who runs it asks first whether the site allows it."""
    return [Asked(node, command) for node in nodes for command in rules.commands]


def read_answer(one: Asked, code: int | None, output: str) -> tuple[str, FindingShape | None]:
    """(what was looked for, "" where it was not; the finding of a yes). code: None where it did not end in time."""
    command = one.command
    if code is None or code in (126, 127):  # not to be executed, or not there
        return "", None
    by_code = command.code is None or code == command.code
    by_words = not command.matches or re.search(command.matches, output) is not None
    if not (by_code and by_words):
        return command.question, None
    summary = f"{command.argv[0]} ended with the code {code}"
    first = next((line.strip() for line in output.splitlines() if line.strip()), "")
    said = f"{summary}: {first[:200]}" if first else summary
    found: FindingShape = {
        "id": command.question,
        "status": "warn",
        "node": one.node,
        "summary": said,
    }
    return command.question, found


# ---------------------------------------------------------------- reading


@dataclass
class Reading:
    file: str
    problems: list[Problem] = field(default_factory=list)
    ids: dict[str, frozenset[str]] = field(default_factory=dict)

    def wrong(self, place: str, what: str, fix: str) -> None:
        self.problems.append(Problem(f"{self.file}, {place}", what, fix))

    def rules(self, given: Any) -> Rules:
        if not isinstance(given, dict):
            self.problems.append(Problem(self.file, "it holds no mapping", f"Begin it with one of {', '.join(KEYS)}"))
            return Rules()
        for name in given:
            if name not in KEYS:
                self.wrong(str(name), f"is no part of a file of rules{near(str(name), KEYS)}", "Correct it")
        entries = {part: list(self.entries(part, given.get(part) or [])) for part in KEYS}
        self.twice(entries)
        self.ids = {part: ids_in(given.get(part)) for part in KEYS}
        texts = tuple(filter(None, (self.text(place, one) for place, one in entries["texts"])))
        commands: list[Command] = []
        questions = {one["id"]: self.question(place, one, commands) for place, one in entries["questions"]}
        known = frozenset({one.id for one in TEXTS} | set(symptoms.OTHERS) | self.ids["texts"])
        ids = frozenset({cause.id for cause in CAUSES} | self.ids["causes"])
        causes = tuple(
            filter(None, (self.cause(place, one, questions, known, ids) for place, one in entries["causes"]))
        )
        return Rules(texts, causes, tuple(commands))

    def entries(self, part: str, given: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Those that have what they need, each with its place."""
        if not isinstance(given, list):
            self.wrong(part, "is no list", "Begin each entry with a dash")
            return
        for number, one in enumerate(given, 1):
            place = f"{part} {number}"
            if not isinstance(one, dict):
                self.wrong(place, "is no mapping", f"Give it {', '.join(NEEDED[part])}")
                continue
            before = len(self.problems)
            place = f"{part} {number} ({one['id']})" if isinstance(one.get("id"), str) else place
            self.keys(part, place, one)
            if len(self.problems) == before:
                yield place, one

    def keys(self, part: str, place: str, one: Mapping[Any, Any]) -> None:
        for name, value in one.items():
            if name not in KEYS[part]:
                self.wrong(place, f"{name} is unknown{near(str(name), KEYS[part])}", "Correct it, or take it out")
            elif not isinstance(value, KEYS[part][name]) or (isinstance(value, bool) and KEYS[part][name] is not bool):
                self.wrong(place, f"{name} is of another type", f"Give it {facts.named(KEYS[part][name])}")
            elif isinstance(value, list) and not all(isinstance(each, str) for each in value):
                self.wrong(place, f"{name} holds something that is no text", "Put each entry into quotes")
        for name in NEEDED[part]:
            if name not in one:
                self.wrong(place, f"{name} is missing", f"Add {name}")
        if isinstance(one.get("id"), str) and not OURS.fullmatch(one["id"]):
            self.wrong(place, "its id is not `site.` and names of small letters", "Write it like site.storage_gone")
        for name in ("says", "fix", "asks"):
            for word in PLACEHOLDER.findall(str(one.get(name, ""))):
                if word not in NAMES:
                    self.wrong(place, f"{name} has {{{word}}}, which is no name{near(word, NAMES)}", "Correct it")

    def twice(self, entries: Mapping[str, list[tuple[str, dict[str, Any]]]]) -> None:
        seen: dict[str, str] = {}
        for all_of in entries.values():
            for place, one in all_of:
                if one["id"] in seen:
                    self.wrong(place, f"its id is that of {seen[one['id']]} too", "Give each its own")
                seen[one["id"]] = place

    def text(self, place: str, one: Mapping[str, Any]) -> Text | None:
        try:
            pattern = re.compile(one["pattern"])
        except re.error as exc:
            self.wrong(place, f"its pattern is no regular expression ({exc})", "Correct it")
            return None
        if not pattern.search(one["example"]):
            self.wrong(place, "its pattern does not find its example", "Correct one of them")
        if pattern.search(""):
            self.wrong(place, "its pattern finds every line", "Make it say more")
        return Text(
            one["id"], one["pattern"], one["means"], one["example"], self.file, victim=bool(one.get("victim", False))
        )

    def question(self, place: str, one: Mapping[str, Any], commands: list[Command]) -> Question:
        kinds = [kind for kind in KINDS if kind in one]
        answered = replace(probe(one["id"], one["asks"]), command="")  # by the answer of its command
        if len(kinds) != 1:
            self.wrong(place, f"it has {' and '.join(kinds) or 'nothing to look at'}", f"Give it one of {words(KINDS)}")
        elif kinds[0] == "finding":
            return probe(one["finding"], one["asks"])
        elif kinds[0] == "command":
            self.command(place, one, commands)
        elif problem := facts.problem_of(one["fact"], one):
            self.wrong(place, *problem)
        else:
            return Question(one["id"], one["asks"], facts.asks(one["fact"], one))
        return answered

    def command(self, place: str, one: Mapping[str, Any], commands: list[Command]) -> None:
        argv, seconds = one["command"], float(one.get("seconds", MOST_SECONDS / 2))
        if not argv:
            self.wrong(place, "its command is empty", "Write it as a list of words, such as [findmnt, /storage]")
            return
        program = argv[0].rpartition("/")[2]
        if program in ROOT:
            self.wrong(place, f"it runs {program}", "A diagnosis has no rights: look at what everybody may see")
        if not 0 < seconds <= MOST_SECONDS:
            self.wrong(place, f"it may take {seconds:g} seconds", f"Give it at most {MOST_SECONDS:g}")
        if "code" not in one and "matches" not in one:
            self.wrong(place, "nothing says which answer is yes", "Give it code, or matches")
        if problem := facts.pattern_problem(one):
            self.wrong(place, *problem)
        commands.append(Command(one["id"], tuple(argv), seconds, one.get("code"), one.get("matches", "")))

    def cause(
        self,
        place: str,
        one: Mapping[str, Any],
        questions: Mapping[str, Question],
        known: frozenset[str],
        ids: frozenset[str],
    ) -> Cause | None:
        choices = {"group": get_args(Group), "scope": get_args(Scope), "places": tuple(PLACES)}
        for name, words_of in choices.items():
            value = one.get(name, "nodes")
            if value not in words_of:
                self.wrong(place, f"{name} is {value}{near(value, words_of)}", f"Give it one of {', '.join(words_of)}")
        named = {known: ("symptoms", "decisive"), ids: ("instead_of",), self.ids["questions"]: REFERRING}
        for there, names in named.items():
            for name in names:
                for each in one.get(name, []):
                    if each not in there:
                        self.wrong(place, f"{name} has {each}, which is nowhere{near(each, there)}", "Correct it")
        if not one["symptoms"]:
            self.wrong(place, "it has no symptom", "A difference alone is no cause: say what is seen of it")
        if not any(one.get(name) for name in ("confirm", "support", "decisive")):
            self.wrong(place, "nothing can show it", "Give it confirm, support or decisive")
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


def ids_in(entries: Any) -> frozenset[str]:
    """Also those of entries that are wrong: whoever names them is not."""
    known = entries if isinstance(entries, list) else []
    return frozenset(one["id"] for one in known if isinstance(one, dict) and isinstance(one.get("id"), str))


def near(word: str, names: Iterable[str]) -> str:
    meant = difflib.get_close_matches(word, sorted(names), 1)
    return f" (did you mean {meant[0]}?)" if meant else ""


def words(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def replayed(rules: Rules, seen: CaseShape) -> tuple[Decided, Decided]:
    """What is said of a recorded case without these rules, and with them."""
    return decide(Case(seen), CAUSES), decide(Case(seen, rules.texts), (*CAUSES, *rules.causes))


def nodes_that_showed(case: Case, by: Sequence[Symptom]) -> Iterator[Place]:
    del case
    return (Place(one.node, what=one.line) for one in by if one.node and not one.victim and one.final)


def no_node(case: Case, by: Sequence[Symptom]) -> Iterator[Place]:
    del case
    if any(one.final for one in by):
        yield Place()


PLACES: dict[str, Places] = {
    "ranks": ranks_shown,
    "nodes": nodes_that_showed,
    "every_node": every_node,
    "no_node": no_node,
}
