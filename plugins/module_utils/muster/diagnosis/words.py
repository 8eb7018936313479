"""Formats a diagnosis as lines of text, and as the content of diagnosis.json.

The result of a log alone fits on one screen: at most three possible causes, each with its own check.
"""

from __future__ import annotations

import re
import shlex
from functools import reduce
from typing import TYPE_CHECKING, TypedDict

from ..verdict.commands import OnNode, playbook
from ..verdict.finding import evidence, fix_with
from ..verdict.printable import printable
from ..verdict.words import few
from .arguments import is_host
from .case import UNNAMED
from .decide import CONFIRMED, LIKELY, ORDINARY
from .model import NEAREST
from .symptoms import OTHERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.finding import FindingEvidence, FindingFix
    from .case import LaunchCase
    from .decide import Decided, JudgedCause
    from .model import Symptom

LAST_ERROR = re.compile(r"^Last error:\n(.+)$", re.MULTILINE)
MOST_OF_LAST_ERROR = 200  # characters
MOST_PROOFS = 2
MOST_CANDIDATES = 6
MOST_POSSIBLE = 3  # for a log alone
MOST_SHOWN = 300  # characters of a cause or symptom of a log alone
MOST_RULED_OUT = 12
SYMPTOM, WHERE, CAUSE, RULED_OUT, NEXT_STEP = "Symptom", "Where", "Cause", "Ruled out", "Next step"
EVERY_NODE = "every node"
NOWHERE = "no particular node: all nodes show the same symptoms"
POSSIBLE_CAUSES = "unknown; possible causes, the most usual first:"
UNEXPLAINED = re.compile(r"rror\b|xception\b|\bFATAL\b|\bWARN\b|[Ff]ailed|[Tt]imed out|\bKilled\b")
MORE_OUTPUT = "export NCCL_DEBUG=INFO TORCH_CPP_LOG_LEVEL=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL"
NAMES = "node|peer|rank|what|path|address|port"
PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+=-]{1,300}")
# Checks without an inventory, in place of playbooks.
BY_HAND = {
    playbook("site.yml", tags="network"): OnNode("nft list ruleset", become=True),
    playbook("site.yml", tags="gpu_stack"): OnNode("nvidia-smi"),
    playbook("site.yml", tags="pytorch"): OnNode("python3 -m torch.utils.collect_env"),
    playbook("playbooks/plan.yml"): OnNode("python3 -m torch.utils.collect_env"),
    playbook("site.yml", tags="baseline"): OnNode("timedatectl"),
}
# What replaces a part that is unknown.
UNKNOWN = {
    "rank": (("rank {rank}", "a rank"),),
    "port": (("port {port}", "the launch port"),),
    "node": (("the head node {node}", "the head node"), ("{node}", UNNAMED)),
    "peer": (("{peer}", "the other node"),),
}
PLACES = re.compile(rf" \(\{{what\}}\)|\{{({NAMES})\}}")
ADVISED = re.compile(rf"(['\"]?)\{{({NAMES})\}}\1")


class SaidCause(TypedDict):
    """A cause as text. node, peer: "" if the cause concerns no specific node. rank: None if the cause concerns no
    specific rank. proofs: the first two answers that support the cause.

    open: questions that could have confirmed or ruled out the cause, and why they were not checked. check: what shows
    whether the cause is right, and its command.
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
    check: FindingFix


class SymptomShape(TypedDict):
    id: str
    node: str
    rank: int | None
    when: float
    line: str
    victim: bool


class Diagnosis(TypedDict):
    """A diagnosis as text. word: confirmed, likely or unknown. lines: symptom, where, cause, ruled out, next step; for
    an unknown cause of a log alone, the possible causes follow the line of the cause. parts: the five lines by name."""

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
        "lines": lines_of(parts, [printable(one) for one in possible_lines(case, decided)]),
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
        "check": check_of(case, one),
    }


def filled(case: LaunchCase, one: JudgedCause, text: str) -> str:
    """Fill each placeholder of a text once. Placeholders within the inserted values are not filled."""
    values = values_of(case, one)
    text = without_unknown(text, values)
    return PLACES.sub(
        lambda found: values[found[1]] if found[1] else f" ({what})" if (what := values["what"]) else "", text
    )


def without_unknown(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders of unknown parts by words."""
    for name, unknown in UNKNOWN.items():
        if not values[name]:
            text = reduce(lambda words, pair: words.replace(*pair), unknown, text)
    return text


def advice(case: LaunchCase, one: JudgedCause) -> str:
    """Return the text of the fix. A fix of a site rule may contain a command, so values that come from a log or a node
    are quoted as one word, unless they are valid host names."""
    values = values_of(case, one)
    for name in ("what", "address"):
        if values[name] and not is_host(values[name]):
            values[name] = shlex.quote(values[name])
    fix = without_unknown(one.cause.fix, values)
    return ADVISED.sub(lambda found: in_quotes(found[1], values[found[2]]), fix)


def in_quotes(mark: str, value: str) -> str:
    """Return the value in the quotes that surround its placeholder, unless the value is already quoted."""
    return value if value.startswith("'") else f"{mark}{value}{mark}"


def command_of(case: LaunchCase, one: JudgedCause, command: str | OnNode) -> str:
    """Return the command of a cause: for Ansible, or for the node itself if the node is in no inventory; "" if a part
    is unknown or invalid."""
    if isinstance(command, str) and case.has_inventory:
        return command
    command = BY_HAND.get(command, OnNode()) if isinstance(command, str) else command
    values = values_of(case, one)
    if one.everywhere:
        values["node"] = case.head
    named = [(name, values[name]) for name in command.places if name in values]
    if not all(PLAIN_PATH.fullmatch(value) if name == "path" else is_host(value) for name, value in named):
        return ""
    node = values[command.at]
    if is_host(node) and case.is_in_the_inventory(node):
        return command.filled(values)
    return "" if case.launch["how"] != "log" else command.there(values)


def check_of(case: LaunchCase, one: JudgedCause) -> FindingFix:
    """Return what shows whether a cause is right: the command of its first open question, otherwise its own command,
    otherwise the advice."""
    questions = [] if one.cause.restates else one.open_questions
    asked = [(question.asks, each) for question in questions for each in (question.command, question.by_hand)]
    checks = sorted([*asked, ("", one.cause.command)], key=lambda check: isinstance(check[1], str))
    for asks, each in checks:  # a command on the node before a playbook, which makes many checks
        if command := command_of(case, one, each):
            return fix_with(printable(filled(case, one, asks) or advice(case, one)), command)
    return fix_with(printable(advice(case, one)))


def values_of(case: LaunchCase, one: JudgedCause) -> dict[str, str]:
    """Return the values of the placeholders."""
    rank = "" if one.place.rank is None else str(one.place.rank)
    node = one.place.node or (case.node_of(one.place.rank) if one.place.rank is not None else "")
    node = "" if node == UNNAMED else node
    ports = {each.about["port"] for each in one.by if "port" in each.about}
    return {
        "node": EVERY_NODE if one.everywhere else node,
        "peer": "" if one.place.peer == UNNAMED else one.place.peer,
        "rank": rank,
        "what": one.place.what,
        "path": one.place.what,
        "address": case.launch["master_addr"],
        "port": ports.pop() if len(ports) == 1 else str(case.launch["master_port"] or ""),
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


def lines_of(parts: Mapping[str, str], possible: Sequence[str] = ()) -> list[str]:
    shown = {**parts, CAUSE: POSSIBLE_CAUSES} if possible else parts
    lines = [f"{name}: {text}" for name, text in shown.items()]
    return [*lines[:3], *possible, *lines[3:]]


def possible_lines(case: LaunchCase, decided: Decided) -> Iterator[str]:
    """Yield the possible causes of a log alone, each with its check."""
    if decided.causes or not case.is_only_a_log:
        return
    for number, one in enumerate(first_of(decided.candidates), 1):
        yield f"  {number}. {cut(filled(case, one, one.cause.says))}"
        yield f"     Check: {check_line(case, one)}"


def check_line(case: LaunchCase, one: JudgedCause) -> str:
    check = check_of(case, one)
    if not (command := check.get("command", "")):
        return check["text"]
    at = values_of(case, one)["node"] or ("each node" if one.cause.scope in ("config", "code") else "the affected node")
    return f"run: {command}" if command.startswith("ansible") else f"on {at}, run: {command}"


def first_of(candidates: Sequence[JudgedCause]) -> list[JudgedCause]:
    return list({one.cause.id: one for one in reversed(candidates)}.values())[::-1][:MOST_POSSIBLE]


def cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def symptom(case: LaunchCase, seen: Sequence[Symptom]) -> str:
    """Return the first symptom that is not a consequence of another one; if all are, the first."""
    closed = {one.rank for one in case.all_failures if one.by_launcher}
    worded = [one for one in seen if not wordless(one)] or list(seen)
    own = [one for one in worded if not one.victim and one.final] or worded
    first = min(own, key=lambda one: (one.rank in closed, one.when == 0.0, one.when), default=None)
    if first is None:
        return case.launch["ending_text"] or unexplained(case) or "no error was recorded"
    rank = "" if first.rank is None else f"rank {first.rank}"
    place = ", ".join(part for part in (rank, first.node) if part and part != UNNAMED)
    line = f"{first.line}{more_words(case, first)}"
    return f"{place}: {line}" if place else line


def unexplained(case: LaunchCase) -> str:
    """Return the last line of a log that reports an error, although no known line is in the log."""
    logs = [*(one["stderr"] for one in case.seen["ranks"]), *(one["log"] for one in case.seen["nodes"])]
    lines = [line.strip() for log in logs for line in log.splitlines() if UNEXPLAINED.search(line)]
    return f"no known message; the last line that reports an error: {cut(lines[-1])}" if lines else ""


def wordless(symptom: Symptom) -> bool:
    """Return whether a symptom is only an exit code, a signal or an ordinary line."""
    return symptom.id in ORDINARY or (symptom.id in ("rank.exit", "agent.ended") and ": " not in symptom.line)


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
        shown = first_of(decided.candidates) if case.is_only_a_log else decided.candidates
        names = [filled(case, one, one.cause.says) for one in shown]
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
    # In a log alone, only what a printed line suggests is worth a word.
    found = [one for one in decided.ruled_out if not case.is_only_a_log or {each.id for each in one.by} - set(OTHERS)]
    nearest = sorted(
        found, key=lambda one: (one.cause.group not in groups, NEAREST.index(one.cause.scope), -len(one.by))
    )
    named = dict.fromkeys(filled(case, one, one.cause.says) for one in nearest)
    return few(list(named), "; ") if named else "nothing was ruled out"


def next_step(case: LaunchCase, decided: Decided) -> str:
    if decided.causes:
        one = decided.causes[0]
        playbook_only = isinstance(one.cause.command, str) and not case.has_inventory
        by_hand = check_of(case, one).get("command", "") if playbook_only else ""
        fix, command = advice(case, one), by_hand or command_of(case, one, one.cause.command)
        return f"{fix}: {command}" if command else fix
    if decided.candidates and case.is_only_a_log:
        return f"check the first possible cause: {check_line(case, decided.candidates[0])}"
    for one in decided.candidates:
        for question in one.open_questions:
            if command := command_of(case, one, question.command):
                return f"to distinguish these causes, run: {command}"
    if case.is_only_a_log:
        return f"collect the logs of all ranks. If they do not show the cause, launch again after: {MORE_OUTPUT}"
    return "keep the logs; Muster has no further check for these symptoms"
