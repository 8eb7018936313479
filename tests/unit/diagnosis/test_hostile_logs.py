"""Every file in cases/hostile is a log crafted to attack the user who diagnoses it.

Each printed command must be one Ansible command with the intended arguments, for any cause. A shell must start only
that program. expect: master address and port, and node names; "" for an invalid host.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import muster.diagnosis
from cases import cases, load_cases
from muster.diagnosis.case import LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import POSSIBLE, Decided, JudgedCause, decide
from muster.diagnosis.foreign import case_of_logs
from muster.diagnosis.log_sources import Known
from muster.diagnosis.model import CausePlace, not_looked
from muster.diagnosis.texts import TEXTS
from muster.diagnosis.words import MOST_POSSIBLE, diagnosis, next_step, said
from muster.verdict.commands import OnNode

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = load_cases(Path(__file__).parent / "cases/hostile")["names_as_they_are"]
KNOWN = [Known("node1", "192.0.2.1"), Known("node2", "192.0.2.2")]
WITHOUT_NAMES = {
    command
    for cause in CAUSES
    for command in (cause.command, *(one.command for one in (*cause.confirm, *cause.refute)))
    if isinstance(command, str) and "{" not in command
}
# Programs that commands on a node start, without an inventory.
BY_HAND = {
    "sudo",
    *(
        command.command.split()[0]
        for cause in CAUSES
        for command in (cause.command, *(each for one in cause.confirm for each in (one.command, one.by_hand)))
        if isinstance(command, OnNode) and command.command
    ),
}
# Programs that the logs try to run, Ansible's own, and those of the commands.
PROGRAMS = ("ansible", "ansible-playbook", "df", "touch", "umount", "id", "ssh", "sh", "curl", "n1", *BY_HAND)
TRIED: set[str] = set()
PARSER, COMPILER = (importlib.import_module(f"re._{name}") for name in ("parser", "compiler"))
ASCII = [chr(code) for code in range(9, 127)]
LIMITED, MOST_PATHS = 1000, 300
SHORT = 8  # characters after a repeat, which occur often in a line
STUB = """#!/bin/sh
{ printf 'started'; for word in "${0##*/}" "$@"; do printf '\\0%s' "$word"; done; printf '\\n'; } >> "$STARTED"
"""


def case_of(case: dict[str, Any]) -> LaunchCase:
    return LaunchCase(case_of_logs(case["logs"], KNOWN))


def commands_of(case: LaunchCase) -> Iterator[str]:
    """Yield all commands that may be printed for a case: for every cause, at each node."""
    nodes = [*case.nodes, "", *case.launch["master_addr"].split()[:1]]
    texts = [case.launch["master_addr"], *(one["stderr"] for one in case.seen["ranks"])]
    for cause in CAUSES:
        for node in nodes:
            for what in texts:
                place = CausePlace(node, case.head, 1, what)
                one = JudgedCause(cause, place, POSSIBLE, (), ())
                yield said(case, one)["fix"].get("command", "")
                for question in (*cause.confirm, *cause.refute):
                    asked = JudgedCause(cause, place, POSSIBLE, ((question, not_looked("")),), ())
                    typed = next_step(case, Decided("unknown", [], [asked], [], [], []))
                    yield typed.partition("run: ")[2]


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    return folder


def started(command: str, stubs: Path) -> list[list[str]]:
    """Return the programs that a shell starts for a command, each with its arguments."""
    record, place = stubs.parent / "started", stubs.parent / "place"
    record.write_text("")
    place.mkdir(exist_ok=True)
    subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=place,
        env={"PATH": str(stubs), "STARTED": str(record)},
        check=False,
        timeout=10,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert not list(place.iterdir()), "it has written a file"
    return [one.split("\0")[1:] for one in record.read_text().splitlines()]


@cases(__file__, "hostile")
def test_printed_command_starts_one_program_with_the_intended_arguments(case: dict[str, Any], stubs: Path) -> None:
    known = case_of(case)
    check(known, stubs)
    launch = known.launch
    assert [launch["master_addr"], launch["master_port"]] == case["expect"]["meeting"]
    assert known.nodes == case["expect"]["nodes"]


@pytest.mark.parametrize(
    "value",
    [
        "{address}",
        "n1';touch x;'",
        "-oProxyCommand=touch",
        "$(touch x)",
        "{{lookup('pipe', 'id')}}",
        "n1\ntouch x",
        "é",
        "",
    ],
)
def test_hostile_names_from_other_sources_do_not_appear_in_commands(value: str, stubs: Path) -> None:
    """Stored evidence and command lines on nodes contain names too."""
    shape = case_of(PLAIN).seen
    shape["launch"]["master_addr"] = value
    shape["launch"]["how"] = "foreign"
    for node in shape["launch"]["nodes"][1:]:
        node["node"] = value
    check(LaunchCase(shape), stubs)


def check(known: LaunchCase, stubs: Path) -> None:
    printed = {command for command in commands_of(known) if command}
    assert printed, "no command is printed"
    for command in printed - TRIED:  # commands without a name from the log are the same for all logs
        TRIED.add(command)
        words = shlex.split(command)
        assert started(command, stubs) == [words]
        assert words[0] in ("ansible", *BY_HAND) or command in WITHOUT_NAMES
        if words[0] == "ansible":
            assert words[1] in ("node1", "node2", "node rank 0", "gpu_nodes")
        inner = shlex.split(words[-1]) if words[0] == "ansible" else words
        assert all(re.fullmatch(r"[\w./:=%@,+-]+", word, re.ASCII) for word in inner)


@cases(__file__, "hostile")
def test_diagnosis_of_a_hostile_log_fits_on_a_screen(case: dict[str, Any]) -> None:
    known = case_of(case)
    shown = diagnosis(known, decide(known, CAUSES))
    assert 5 <= len(shown["lines"]) <= 5 + 2 * MOST_POSSIBLE
    assert all(line.replace("\n", "").isprintable() for line in shown["lines"])


@pytest.mark.parametrize("what", ["/storage", "n1';touch x;'", "$(touch x)", "a\ttouch x", "{address}", "a b"])
@pytest.mark.parametrize("fix", ["Run: umount {what}", "Run: umount '{what}'", 'Run: umount "{what}"'])
def test_log_text_in_a_site_fix_is_quoted_as_one_word(fix: str, what: str, stubs: Path) -> None:
    """The fix of a site rule may contain a command."""
    known = case_of(PLAIN)
    one = JudgedCause(replace(CAUSES[0], fix=fix, command=""), CausePlace("node1", what=what), POSSIBLE, (), ())
    command = said(known, one)["fix"]["text"].removeprefix("Run: ")
    assert shlex.split(command) == ["umount", what]
    assert started(command, stubs) == [["umount", what]]


def test_stubs_record_programs_started_by_a_shell(stubs: Path) -> None:
    """Guards against stubs that never record anything."""
    assert started("ansible 'a b'; touch x", stubs) == [["ansible", "a b"], ["touch", "x"]]
    assert started('ansible "$(touch x)"', stubs) == [["touch", "x"], ["ansible", ""]]


def test_valid_names_appear_in_commands() -> None:
    printed = set(commands_of(case_of(PLAIN)))
    for wanted in ("ip route get node1.lab.example", "getent ahosts node1.lab.example"):
        assert f"ansible node2 -m ansible.builtin.command -a '{wanted}'" in printed
    assert "ansible node2 --become -m ansible.builtin.command -a 'ss -ltnp sport = :29500'" in printed


class Item(NamedTuple):
    """The characters that an item of a pattern matches, and whether their number is unlimited. Anchors match none."""

    characters: frozenset[str]
    endless: bool = False


def paths(parsed: Any) -> list[list[Item]]:
    """Return the alternatives of a parsed pattern."""
    found: list[list[Item]] = [[]]
    for kind, about in parsed:
        more: list[list[Item]] = [[]]
        match str(kind):
            case "SUBPATTERN":
                more = paths(about[3])
            case "BRANCH":
                more = [path for one in about[1] for path in paths(one)]
            case "MAX_REPEAT" | "MIN_REPEAT":
                inner = paths(about[2])
                more = [path * about[0] for path in inner]
                more += [path for path in inner if not about[0] and any(item.endless for item in path)]
                if about[1] > LIMITED:
                    every = frozenset().union(*(item.characters for path in inner for item in path))
                    more = [[*(path * about[0])[1:], Item(every, endless=True)] for path in inner]
            case "ASSERT" | "ASSERT_NOT" if about[0] > 0:
                pass
            case "AT" | "ASSERT" | "ASSERT_NOT" | "GROUPREF":
                more = [[Item(frozenset())]]
            case _:
                one = COMPILER.compile(PARSER.SubPattern(PARSER.State(), [(kind, about)]))
                more = [[Item(frozenset(filter(one.fullmatch, ASCII)))]]
        found = [[*path, *end] for path in found for end in more][:MOST_PATHS]
    return found


def slow(path: list[Item]) -> bool:
    """Return whether a search can take quadratic time: an endless item begins the pattern, or two endless items can
    divide the same characters between each other."""
    for at, item in enumerate(path):
        before = next((one for one in range(at - 1, -1, -1) if path[one].endless), None)
        shared = item.characters & path[before].characters if before is not None else frozenset()
        between = path[(before or 0) + 1 : at]
        divided = len(between) < SHORT and all(one.characters & shared for one in between if one.characters)
        if item.endless and any(one.characters for one in path[at + 1 :]) and (at == 0 or (shared and divided)):
            return True
    return False


SEARCHED = [(text.id, re.compile(text.pattern)) for text in TEXTS]
for found in pkgutil.walk_packages(muster.diagnosis.__path__, "muster.diagnosis."):
    module = importlib.import_module(found.name)
    used = set(re.findall(r"\b(\w+)\.(?:search|finditer|findall|sub|split)\(", inspect.getsource(module)))
    SEARCHED += [(name, one) for name, one in vars(module).items() if isinstance(one, re.Pattern) and name in used]


@pytest.mark.parametrize("pattern", [one for _, one in SEARCHED], ids=[name for name, _ in SEARCHED])
def test_search_in_a_hostile_line_takes_no_quadratic_time(pattern: re.Pattern[str]) -> None:
    assert not [path for path in paths(PARSER.parse(pattern.pattern)) if slow(path)]
