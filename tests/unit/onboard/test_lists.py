"""Parsing of node lists: Slurm's notation, hostfiles and ssh configs."""

from __future__ import annotations

import pytest

from muster.onboard.lists import HostfileLine, aliases, chosen, commands, expand, hostfile


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node9", ["node9"]),
        ("gpu[01-03]", ["gpu01", "gpu02", "gpu03"]),
        ("gpu[08-10]", ["gpu08", "gpu09", "gpu10"]),
        ("gpu[1-2,7],head", ["gpu1", "gpu2", "gpu7", "head"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("10.0.0.[11-12]", ["10.0.0.11", "10.0.0.12"]),
        (" a, b  c ", ["a", "b", "c"]),
        ("", []),
    ],
)
def test_slurm_list_is_expanded(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpu[01-", r"gpu\[01- has an unclosed bracket"),
        ("gpu]1[", "has unbalanced brackets"),
        ("gpu[[1]]", "has unbalanced brackets"),
        ("gpu[4-1]", "has a descending range from 4 to 1"),
        ("gpu[a-b]", "has a-b in brackets; use numbers"),
        ("gpu[]", "has nothing in brackets"),
        ("gpu[1-2000]", "lists more than 1024 nodes"),
        ("gpu[1-99]n[1-99]", "lists more than 1024 nodes"),
        ("gpu[1-1000],node[1-1000]", "lists more than 1024 nodes"),
    ],
)
def test_invalid_list_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        expand(text)


def test_hostfile_is_parsed() -> None:
    text = "# ours\nnode9 10.0.0.9 slots=8  # new\n\n10.0.0.10\nnode11\nnode12 10.0.0.12 max_slots=9\n"
    assert hostfile(text) == (
        [
            HostfileLine("node9", "10.0.0.9", 8, 2),
            HostfileLine("10.0.0.10", "", 0, 4),
            HostfileLine("node11", "", 0, 5),
            HostfileLine("node12", "10.0.0.12", 0, 6),
        ],
        [],
    )
    assert hostfile("a b c\nnode9 slots=many\n") == (
        [],
        [
            "line 1: expected a name, an address and optionally slots=N, but found 3 words",
            "line 2: slots is 'many', which is not a number",
        ],
    )


def test_hosts_of_an_ssh_config_are_found() -> None:
    text = "Host gpu1 gpu2  # ours\n  HostName 10.0.0.1\nHost=gpu3\nhost *.lab !gpu9 gpu?\nMatch host x\nHost gpu1\n"
    assert aliases(f'{text}Host "a\n') == ["gpu1", "gpu2", "gpu3"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("", (["gpu1", "gpu2", "head"], [])),
        ("gpu*", (["gpu1", "gpu2"], [])),
        ("head,gpu[1-2]", (["gpu1", "gpu2", "head"], [])),
        ("gpu[2-3]", (["gpu2"], ["gpu3"])),
        ("tpu*", ([], ["tpu*"])),
    ],
)
def test_names_and_patterns_select_hosts(wanted: str, expected: tuple[list[str], list[str]]) -> None:
    assert chosen(["gpu1", "gpu2", "head"], wanted) == expected


@pytest.mark.parametrize(
    "line",
    [
        'Match exec "true"',
        "\tmatch  !EXEC true",
        'Match host gpu1 exec="true"',
        "MATCH originalhost=a,b Exec=true",
        "= Match exec true",
        "Match\rexec true",
        '"Match"exec "true"',
        '"Match"ex"ec" "true"',
        'Ma"tch" e"xe"c true',
        "Match 'exec' 'true'",
        "Include ~/other",
        "include=/tmp/x",
        '"Include" x',
    ],
)
def test_commands_and_includes_in_an_ssh_config_are_found(line: str) -> None:
    """The expected results are those of OpenSSH 9.2. Syntax that only other releases accept is rejected as well."""
    what = "Include" if "include" in line.lower() else "Match exec"
    assert commands(f"# Match exec\nHost exec\n{line}\n  User include\n") == [(3, what)]


@pytest.mark.parametrize(
    "line", ["Match host gpu1", "Match all", "Host match exec", 'User "match"', " # Include x", "="]
)
def test_harmless_lines_of_an_ssh_config_are_accepted(line: str) -> None:
    assert commands(line) == []
