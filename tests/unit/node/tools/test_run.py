"""Commands that hang, print too much, fail or are missing."""

from __future__ import annotations

import os
import pwd
import sys
import time
from typing import TYPE_CHECKING

import pytest

from muster_node.tools import process
from muster_node.tools import run as run_tool
from muster_node.tools.run import CLEAN, _identity, failure, read, run

if TYPE_CHECKING:
    from pathlib import Path


def test_output_and_exit_status_are_returned() -> None:
    answer = run("sh", "-c", "cat; echo aside >&2", stdin="given")
    assert (answer.text, answer.why, answer.aside, answer.code) == ("given", "", "aside\n", 0)
    answer = run("sh", "-c", "echo some; echo first >&2; echo second >&2; exit 3")
    assert (answer.text, answer.why, answer.code) == ("some\n", "sh ended with 3: first", 3)
    assert failure(["sh"], answer) == "sh ended with exit code 3: first second"


def test_environment_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert set(run("env").text.split()) <= {f"{name}={value}" for name, value in CLEAN.items()}
    assert "A=b" in run("env", env={"PATH": os.environ["PATH"], "A": "b"}).text


def test_missing_command_is_reported() -> None:
    answer = run("no-such-command")
    assert (answer.why, answer.code, answer.missing, answer.late) == ("no-such-command is not there", None, True, False)
    assert failure(["no-such-command"], answer) == answer.why


def test_command_that_cannot_run_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    answer = run(str(tmp_path / "data"))
    assert answer.why.endswith("cannot be run: Permission denied")
    assert not answer.missing
    assert "cannot be run" in run("echo", "a\0b").why


def test_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    answer = run("sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; sleep 60", seconds=0.5)
    assert (answer.why, answer.code, answer.late) == ("sh did not answer within 0 s", None, True)
    assert time.monotonic() - began < 10
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while process.runs(child):
        assert time.monotonic() < deadline


def test_excess_output_is_discarded_and_the_command_ends() -> None:
    flood = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 3_000_000); sys.exit(4)"
    answer = run(sys.executable, "-c", flood, most=1000, seconds=60)
    assert (answer.text, answer.aside, answer.code) == ("x" * 1000, "y" * 1000, 4)


def test_truncated_output_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = run("echo", "12345", most=4)
    assert (answer.text, answer.code) == ("1234", 0)
    assert answer.why == "the output of echo was truncated after 4 bytes"
    assert run("echo", "123", most=4).why == ""
    long = tmp_path / "long"
    long.write_text("12345")
    monkeypatch.setattr(run_tool, "MOST", 4)
    assert read(str(long)) == ("1234", f"{long} was truncated after 4 bytes", "", None, False, False)


def test_large_input_and_output_do_not_deadlock() -> None:
    given = "line\n" * 200_000
    assert run("cat", stdin=given, seconds=60).text == given


def test_unread_input_is_not_an_error() -> None:
    assert run("true", stdin="x" * 1_000_000).code == 0


def test_command_without_time_limit_runs_to_its_end() -> None:
    assert run("sleep", "0.1", seconds=None).code == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a command as another user")
def test_command_has_only_the_groups_of_its_user() -> None:
    nobody = pwd.getpwnam("nobody")
    groups = " ".join(map(str, os.getgrouplist("nobody", nobody.pw_gid)))
    said = run("sh", "-c", "id -u; id -g; id -G", user=nobody).text.split("\n")
    assert said == [str(nobody.pw_uid), str(nobody.pw_gid), groups, ""]


def test_command_of_the_current_user_runs_without_switching_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    me = pwd.getpwuid(os.getuid())
    with_ids = pwd.struct_passwd((me.pw_name, "x", 1234, *me[3:]))
    assert _identity(with_ids) == {}
    assert _identity(pwd.getpwnam("nobody"))["user"] == pwd.getpwnam("nobody").pw_uid
