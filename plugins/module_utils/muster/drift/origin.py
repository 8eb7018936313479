"""When a thing was changed, and by whom, as far as a node's logs and the times of its files tell: pure.

A time comes from where the thing itself is written down: dpkg's log, the file, the unit. A name comes from who was at
work on it at that time: the stanza of apt's history, a run of Muster, a command of sudo that names the thing. Where two
fit equally, or none does, nobody is named: who was at work on something else then may have been the one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..verdict.masking import masked_argv
from .judge import OF_THE_RECORD
from .model import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .model import DriftDifference, History, LogLine, Subject

# Seconds. The times of apt's and dpkg's logs are whole ones; a command works for a while, an editor for longer.
SLACK = 2.0
DPKG = "dpkg's log"
SUDO_SLACK = {DPKG: 1.0}
SUDO_SLACK_ELSE = 0.2
COMMAND_BEFORE = 900.0
AT_THE_MOMENT = 3.0
PACKAGER_BEFORE = 60.0
SHELL_BEFORE = 4 * 3600.0
BEFORE_BOOT = 300.0
SUDO = re.compile(
    r"^\s*(?P<who>\S+) : (?:.*? ; )?(?:PWD=(?P<folder>.*?) ; )(?:.*? ; )?USER=\S+ ; (?:.*? ; )?COMMAND=(?P<command>.*)$"
)
TAKES = re.compile(r"(?P<who>\S+) takes the claim for (?P<doing>.*?)(?:, which .* had|; \S+ is gone)?$")
FREES = re.compile(r"(?P<who>\S+) frees the claim: ")
UNATTENDED = ("unattended-upgrade", "apt.systemd.daily", "packagekit")
PACKAGERS = ("dpkg", "gdebi")
APT = ("apt", "apt-get", "aptitude")
# They only show what is there.
READERS = (
    "cat",
    "less",
    "more",
    "head",
    "tail",
    "grep",
    "ls",
    "stat",
    "diff",
    "find",
    "id",
    "wc",
    "md5sum",
    "sha256sum",
)
# In one of these anything may be done, of which no log knows.
SHELL = re.compile(r"(?:/\S*/)?(?:(?:ba|da|z|fi|k)?sh|su)(?: -[il]?| --login| root)*")
# What Ansible has sudo run: it says nothing of what the module did.
ANSIBLE = "BECOME-SUCCESS-"
LONGEST = 160  # characters of a command that are shown


class Claim(NamedTuple):
    begin: float
    end: float
    who: str
    doing: str


class LoggedCommand(NamedTuple):
    """folder: where it was typed."""

    at: float
    who: str
    command: str
    folder: str = ""


class Clue(NamedTuple):
    """When a thing was changed, and who says so. names: what a command that did it would name."""

    at: float
    source: str
    text: str
    names: tuple[str, ...]


def origin(difference: DriftDifference, history: History) -> Origin:
    """The newest clue counts: what a thing is, its last change has made it."""
    words = tuple(subject.name for subject in difference.subjects if subject.kind in ("word", "sysctl"))
    clues = [clue for subject in difference.subjects for clue in _clues(subject, difference, history, words)]
    if difference.check in OF_THE_RECORD:  # what that run has seen was written down as it was
        clues = [clue for clue in clues if clue.at >= history.since]
    if not clues:
        return _by_name_alone(difference, words, history)
    newest = max(clues, key=lambda clue: clue.at)
    if any(subject.kind == "boot" for subject in difference.subjects):
        brought = [clue for clue in clues if clue.source == DPKG]
        if brought:  # a kernel runs since the restart, and is from whoever installed it
            return replace(_who(brought[-1], brought[-1].names, history, of_a_package=True), at=newest.at)
        return _of_a_boot(newest, words, history)
    names = tuple(dict.fromkeys((*newest.names, *(name for clue in clues for name in clue.names))))
    return _who(newest, names, history, of_a_package=newest.source == DPKG)


# ---------------------------------------------------------------- when


def _clues(subject: Subject, difference: DriftDifference, history: History, words: Sequence[str]) -> Iterator[Clue]:
    if subject.kind == "package":
        done = [one for one in history.dpkg if one["package"] == subject.name]
        fits = [one for one in done if one["after"] == difference.value]
        for one in (fits or done)[-1:]:
            text = f"{one['action']} {one['package']} {one['before']} {one['after']}"
            yield Clue(one["at"], DPKG, text, (subject.name,))
    elif subject.kind == "unit" and subject.name in history.units:
        name = subject.name
        yield Clue(history.units[name], "systemd", f"{name} changed its state", (name, name.rpartition(".")[0]))
    elif subject.kind == "part":
        folder = subject.name.rpartition("/")[0]
        places = (subject.name, _info_of(subject.name, history), f"{folder}/" if folder else "")
        where = next((name for name in places if name in history.parts), None)
        seen = history.parts[where] if where is not None else {}
        # What is as old as what was written down is not where the change was: a file beside the packages may be gone.
        if seen and seen["at"] >= history.since:
            text = f"{seen.get('path', '')} of {seen.get('owner', 'somebody')}"
            yield Clue(seen["at"], "a file's time", text, (seen.get("path", ""), "pip", *words))
    elif subject.kind == "file" and history.files.get(subject.name):
        seen = history.files[subject.name]
        gone = "its folder was changed then, and it is gone" if seen.get("gone") else ""
        text = gone or f"of {seen.get('owner', 'somebody')}, {seen.get('mode', '')}"
        names = (subject.name, seen.get("path", ""), *words)
        yield Clue(seen["at"], "a file's time", f"{subject.name}: {text}", names)
    elif subject.kind == "boot" and history.booted:
        yield Clue(history.booted, "the start of the system", "it was started then", tuple(words))


def _info_of(name: str, history: History) -> str:
    """The part of site-packages that says which version of a package is there."""
    wanted = re.sub(r"[-_.]+", "_", name).lower()
    return next((part for part in history.parts if re.sub(r"[-_.]+", "_", part).lower().startswith(f"{wanted}_")), name)


# ---------------------------------------------------------------- who


def _who(clue: Clue, names: Sequence[str], history: History, *, of_a_package: bool) -> Origin:
    at = clue.at
    claims = [one for one in claims_of(history.muster) if one.begin - SLACK <= at <= one.end + SLACK]
    commands = list(commands_of(history.sudo))
    slack = SUDO_SLACK.get(clue.source, SUDO_SLACK_ELSE)
    said = [one for one in commands if at - COMMAND_BEFORE <= one.at <= at + slack and names_one(one, names)]
    if of_a_package:
        asked = [
            one
            for one in history.apt
            if one["begin"] - SLACK <= at <= one["end"] + SLACK and not set(one["packages"]).isdisjoint(names)
        ]
        if len(asked) == 1:
            command, by = asked[0]["command"], asked[0]["by"].partition(" ")[0]
            if any(word in command for word in UNATTENDED):
                return Origin(at, "unattended upgrades", _shown(command), "apt's history", "unattended")
            if claims and not said:
                return _of_muster(at, claims)
            if by or said:
                who = by or said[-1].who
                return Origin(at, who, _shown(command), "apt's history", "person")
            return Origin(at, "", _shown(command), "apt's history")
    if claims and not said:
        return _of_muster(at, claims)
    if claims:
        others = (*(f"{one.who} (sudo {_shown(one.command)})" for one in said[-1:]), f"{claims[-1].who} (Muster)")
        return Origin(at, source=clue.source, others=others)
    near = [one for one in commands if at - _reach(one) <= one.at <= at + 1.0 and ANSIBLE not in one.command]
    if of_a_package:  # dpkg is given a file of whatever name; what apt does is in its history, and this is not
        said = [one for one in near if program_of(one) in PACKAGERS] or [
            one for one in said if program_of(one) not in APT
        ]
    if said:
        return _one_of(said, at, clue.source)
    return Origin(at, source=clue.source, others=_several(near))


def _reach(command: LoggedCommand) -> float:
    """For how long it may do things that it does not name."""
    if SHELL.fullmatch(command.command):
        return SHELL_BEFORE
    return PACKAGER_BEFORE if program_of(command) in PACKAGERS else AT_THE_MOMENT


def _of_muster(at: float, claims: Sequence[Claim]) -> Origin:
    who = claims[-1].who
    return Origin(at, who, f"Muster: {claims[-1].doing}", "the journal", "muster")


def _one_of(commands: Sequence[LoggedCommand], at: float, source: str) -> Origin:
    people = list(dict.fromkeys(one.who for one in commands))
    if len(people) == 1:
        return Origin(at, people[0], _shown(commands[-1].command), f"{source}, sudo's log", "person")
    return Origin(at, source=source, others=_several(commands))


def _several(commands: Sequence[LoggedCommand]) -> tuple[str, ...]:
    """The newest three, each once."""
    return tuple(dict.fromkeys(f"{one.who} (sudo {_shown(one.command)})" for one in commands))[-3:]


def _by_name_alone(difference: DriftDifference, words: Sequence[str], history: History) -> Origin:
    """Nothing keeps the time of it: a command that names it does, where there is one person's alone."""
    if not words:
        return Origin()
    commands = [one for one in commands_of(history.sudo) if one.at >= history.since and names_one(one, words)]
    exact = [
        one for one in commands if difference.value and difference.value.split()[-1] in re.split(r"[\s=]+", one.command)
    ]
    near = exact or commands
    if not near:
        return Origin()
    found = _one_of(near, near[-1].at, "")
    return Origin(found.at, found.by, found.how, "sudo's log", found.kind) if found.by else Origin(others=found.others)


def _of_a_boot(clue: Clue, words: Sequence[str], history: History) -> Origin:
    """A restart, and what came with it: whoever asked for it just before."""
    at = clue.at
    asked = [one for one in commands_of(history.sudo) if at - BEFORE_BOOT <= one.at <= at and names_one(one, words)]
    if not words or not asked:
        return Origin(at, source=clue.source)
    return _one_of(asked, at, clue.source)


# ---------------------------------------------------------------- logs


def claims_of(lines: Sequence[LogLine]) -> list[Claim]:
    """When runs of Muster had the node. One that was never freed ended with the next, or has not ended."""
    found: list[Claim] = []
    for line in lines:
        takes, frees = TAKES.search(line["text"]), FREES.search(line["text"])
        if takes:
            if found and found[-1].end == float("inf"):
                found[-1] = found[-1]._replace(end=line["at"])
            found.append(Claim(line["at"], float("inf"), takes["who"], takes["doing"]))
        elif frees and found and found[-1].end == float("inf"):
            found[-1] = found[-1]._replace(end=line["at"])
    return found


def commands_of(lines: Iterable[LogLine]) -> Iterator[LoggedCommand]:
    for line in lines:
        match = SUDO.match(line["text"])
        refused = "incorrect password" in line["text"] or "command not allowed" in line["text"]
        if match and not refused:
            command = LoggedCommand(line["at"], match["who"], match["command"], match["folder"])
            if program_of(command) not in READERS:
                yield command


def program_of(command: LoggedCommand) -> str:
    return command.command.partition(" ")[0].rpartition("/")[2]


def names_one(command: LoggedCommand, names: Sequence[str]) -> bool:
    """Whether it names one of these as a word of its own; a path may be one from where it was typed."""
    if ANSIBLE in command.command:
        return False
    before = command.folder.rstrip("/") + "/"
    near = [name.removeprefix(before) for name in names if name.startswith(before)]
    return any(name and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", command.command) for name in names) or any(
        name and re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w-])", command.command) for name in near
    )


def _shown(command: str) -> str:
    """What was typed, without what looks like a secret in it."""
    command = " ".join(masked_argv(command.split()))
    return command if len(command) <= LONGEST else f"{command[: LONGEST - 1]}…"
