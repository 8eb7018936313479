"""Determine the time and the author of a change from the logs and file times of a node. Pure functions.

The time comes from the record of the changed item: dpkg's log, the file or the unit. The author comes from activity on
that item at that time: an entry in apt's history, a run of Muster, or a sudo command that names the item. If two
activities match equally well, or none matches, no author is named.
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

# Seconds. Logs of apt and dpkg have whole seconds. A command works for a while, an editor session longer.
SLACK = 2.0
DPKG = "dpkg's log"
SUDO_SLACK = {DPKG: 1.0}
SUDO_SLACK_ELSE = 0.2
COMMAND_BEFORE = 900.0
AT_THE_MOMENT = 3.0
PACKAGER_BEFORE = 60.0
SHELL_BEFORE = 4 * 3600.0
BEFORE_BOOT = 300.0
SUDO = re.compile(r"\s*(?P<who>\S+) :(?P<about>.*?) ; COMMAND=(?P<command>.*)")
TAKES = re.compile(r"(?P<who>\S+) takes the claim for (?P<doing>.*?)(?:, which .* had|; \S+ is gone)?$")
FREES = re.compile(r"(?P<who>\S+) frees the claim: ")
UNATTENDED = ("unattended-upgrade", "apt.systemd.daily", "packagekit")
PACKAGERS = ("dpkg", "gdebi")
APT = ("apt", "apt-get", "aptitude")
# Programs that only display.
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
# Shells: changes made in them do not appear in any log.
SHELL = re.compile(r"(?:/\S*/)?(?:(?:ba|da|z|fi|k)?sh|su)(?: -[il]?| --login| root)*")
# The sudo command of Ansible: it does not show what the module did.
ANSIBLE = "BECOME-SUCCESS-"
LONGEST = 160  # characters of a command that are shown


class Claim(NamedTuple):
    begin: float
    end: float
    who: str
    doing: str


class LoggedCommand(NamedTuple):
    """A sudo command in the logs. folder: its working directory."""

    at: float
    who: str
    command: str
    folder: str = ""


class Clue(NamedTuple):
    """When a change happened, and which source shows it. names: words that a command for this change would contain."""

    at: float
    source: str
    text: str
    names: tuple[str, ...]


def origin(difference: DriftDifference, history: History) -> Origin:
    """Return the origin of the newest clue, because the most recent change produced the present state."""
    words = tuple(subject.name for subject in difference.subjects if subject.kind in ("word", "sysctl"))
    clues = [clue for subject in difference.subjects for clue in _clues(subject, difference, history, words)]
    if difference.check in OF_THE_RECORD:  # older changes were already in the state that this run recorded
        clues = [clue for clue in clues if clue.at >= history.since]
    if not clues:
        return _by_name_alone(difference, words, history)
    newest = max(clues, key=lambda clue: clue.at)
    if any(subject.kind == "boot" for subject in difference.subjects):
        brought = [clue for clue in clues if clue.source == DPKG]
        if brought:  # a kernel runs since the reboot; its author is who installed it
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
        yield Clue(history.units[name], "systemd", f"{name} changed state", (name, name.rpartition(".")[0]))
    elif subject.kind == "part":
        folder = subject.name.rpartition("/")[0]
        places = (subject.name, _info_of(subject.name, history), f"{folder}/" if folder else "")
        where = next((name for name in places if name in history.parts), None)
        seen = history.parts[where] if where is not None else {}
        # A file older than the record was not changed after it; then the change may be a removed file of the package.
        if "at" in seen and seen["at"] >= history.since:
            text = f"{seen.get('path', '')} (owner {seen.get('owner', 'unknown')})"
            yield Clue(seen["at"], "a file's time", text, (seen.get("path", ""), "pip", *words))
    elif subject.kind == "file" and "at" in history.files.get(subject.name, {}):
        seen = history.files[subject.name]
        gone = "the file is missing; its folder was changed at that time" if seen.get("gone") else ""
        text = gone or f"owner {seen.get('owner', 'unknown')}, mode {seen.get('mode', '')}"
        names = (subject.name, seen.get("path", ""), *words)
        yield Clue(seen["at"], "a file's time", f"{subject.name}: {text}", names)
    elif subject.kind == "boot" and history.booted:
        yield Clue(history.booted, "the boot time", "the node was booted at that time", tuple(words))


def _info_of(name: str, history: History) -> str:
    """Return the entry in site-packages that contains the version of a package."""
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
    if of_a_package:  # a .deb for dpkg may have any name; changes by apt would be in its history
        said = [one for one in near if program_of(one) in PACKAGERS] or [
            one for one in said if program_of(one) not in APT
        ]
    if said:
        return _one_of(said, at, clue.source)
    return Origin(at, source=clue.source, others=_several(near))


def _reach(command: LoggedCommand) -> float:
    """Return for how many seconds after its start a command may change items that it does not name."""
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
    """Return the three most recent distinct commands."""
    return tuple(dict.fromkeys(f"{one.who} (sudo {_shown(one.command)})" for one in commands))[-3:]


def _by_name_alone(difference: DriftDifference, words: Sequence[str], history: History) -> Origin:
    """Find the origin of a change without a recorded time: a command that names the item, if only one user ran such
    commands.
    """
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
    """Return the origin of a reboot and its effects: the user who requested the reboot immediately before it."""
    at = clue.at
    asked = [one for one in commands_of(history.sudo) if at - BEFORE_BOOT <= one.at <= at and names_one(one, words)]
    if not words or not asked:
        return Origin(at, source=clue.source)
    return _one_of(asked, at, clue.source)


# ---------------------------------------------------------------- logs


def claims_of(lines: Sequence[LogLine]) -> list[Claim]:
    """Return the periods in which runs of Muster had claimed the node.

    An unreleased claim ends when the next one begins.
    """
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
        match = SUDO.fullmatch(line["text"])
        refused = "incorrect password" in line["text"] or "command not allowed" in line["text"]
        _, pwd, about = f" ;{match['about']} ; ".partition(" ; PWD=") if match else ("", "", "")
        if match and pwd and " ; USER=" in about and not refused:
            command = LoggedCommand(line["at"], match["who"], match["command"], about.partition(" ; ")[0])
            if program_of(command) not in READERS:
                yield command


def program_of(command: LoggedCommand) -> str:
    return command.command.partition(" ")[0].rpartition("/")[2]


def names_one(command: LoggedCommand, names: Sequence[str]) -> bool:
    """Return whether the command contains one of the names as a word.

    Relative paths are resolved in its working directory.
    """
    if ANSIBLE in command.command:
        return False
    before = command.folder.rstrip("/") + "/"
    near = [name.removeprefix(before) for name in names if name.startswith(before)]
    return any(name and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", command.command) for name in names) or any(
        name and re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w-])", command.command) for name in near
    )


def _shown(command: str) -> str:
    """Return the command with apparent secrets masked."""
    command = " ".join(masked_argv(command.split()))
    return command if len(command) <= LONGEST else f"{command[: LONGEST - 1]}…"
