"""Every file in cases/hostile is a log that somebody has written for whoever diagnoses it.

What is printed for it is one command of Ansible's with the words that were meant, whatever a cause is said of: in a
shell it starts that program alone. expect: where the nodes meet, and what they are called; "" for what is no host.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases, load_cases
from muster.diagnosis.case import LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import POSSIBLE, Decided, JudgedCause, decide
from muster.diagnosis.foreign import Known, case_of_logs
from muster.diagnosis.model import CausePlace, not_looked
from muster.diagnosis.words import diagnosis, next_step, said

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
TELL_APART = "to distinguish these causes, run: "
# What the logs would have a shell run, beside Ansible's own programs.
PROGRAMS = ("ansible", "ansible-playbook", "df", "touch", "umount", "id", "ssh", "sh", "curl", "n1")
STUB = """#!/bin/sh
{ printf 'started'; for word in "${0##*/}" "$@"; do printf '\\0%s' "$word"; done; printf '\\n'; } >> "$STARTED"
"""


def case_of(case: dict[str, Any]) -> LaunchCase:
    return LaunchCase(case_of_logs(case["logs"], KNOWN))


def commands_of(case: LaunchCase) -> Iterator[str]:
    """All that may be printed of a case: for every cause there is, at each of its nodes."""
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
                    yield typed.removeprefix(TELL_APART) if typed.startswith(TELL_APART) else ""


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    return folder


def started(command: str, stubs: Path) -> list[list[str]]:
    """The programs that a shell starts for it, each with its words."""
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
def test_what_is_printed_starts_one_program_with_the_words_that_were_meant(case: dict[str, Any], stubs: Path) -> None:
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
def test_names_that_came_another_way_are_in_no_command(value: str, stubs: Path) -> None:
    """Evidence that was kept, and what somebody has typed on a node, hold names as well."""
    shape = case_of(PLAIN).seen
    shape["launch"]["master_addr"] = value
    shape["launch"]["how"] = "foreign"
    for node in shape["launch"]["nodes"][1:]:
        node["node"] = value
    check(LaunchCase(shape), stubs)


def check(known: LaunchCase, stubs: Path) -> None:
    printed = {command for command in commands_of(known) if command}
    assert printed, "nothing is printed at all"
    for command in printed:
        words = shlex.split(command)
        assert started(command, stubs) == [words]
        assert words[0] == "ansible" or command in WITHOUT_NAMES
        if words[0] == "ansible":
            assert words[1] in ("node1", "node2", "node rank 0", "gpu_nodes")
            assert all(re.fullmatch(r"[\w./:=%@,+-]+", word, re.ASCII) for word in shlex.split(words[-1]))


@cases(__file__, "hostile")
def test_what_is_said_of_it_has_five_lines(case: dict[str, Any]) -> None:
    known = case_of(case)
    shown = diagnosis(known, decide(known, CAUSES))
    assert len(shown["lines"]) == 5
    assert all(line.replace("\n", "").isprintable() for line in shown["lines"])


@pytest.mark.parametrize("what", ["/storage", "n1';touch x;'", "$(touch x)", "a\ttouch x", "{address}", "a b"])
@pytest.mark.parametrize("fix", ["Run: umount {what}", "Run: umount '{what}'", 'Run: umount "{what}"'])
def test_in_the_fix_of_a_sites_rule_a_text_of_a_log_is_one_word(fix: str, what: str, stubs: Path) -> None:
    """It is a sentence, in which people write commands."""
    known = case_of(PLAIN)
    one = JudgedCause(replace(CAUSES[0], fix=fix, command=""), CausePlace("node1", what=what), POSSIBLE, (), ())
    command = said(known, one)["fix"]["text"].removeprefix("Run: ")
    assert shlex.split(command) == ["umount", what]
    assert started(command, stubs) == [["umount", what]]


def test_the_stubs_see_what_a_shell_starts(stubs: Path) -> None:
    """Without this the test above would pass whatever is printed."""
    assert started("ansible 'a b'; touch x", stubs) == [["ansible", "a b"], ["touch", "x"]]
    assert started('ansible "$(touch x)"', stubs) == [["touch", "x"], ["ansible", ""]]


def test_a_name_that_is_one_is_in_its_commands() -> None:
    printed = set(commands_of(case_of(PLAIN)))
    for wanted in ("ip route get node1.lab.example", "getent ahosts node1.lab.example"):
        assert f"ansible node2 -m ansible.builtin.command -a '{wanted}'" in printed
    assert "ansible node2 --become -m ansible.builtin.command -a 'ss -ltnp sport = :29500'" in printed
