"""Site commands on a node: run in parallel, without privileges, with limits for time and output."""

from __future__ import annotations

import os
import pwd
import time
from typing import Any

import pytest

from muster_node.programs import site_questions

ME = pwd.getpwuid(os.getuid()).pw_name


def answers_of(commands: dict[str, list[str]], seconds: float = 5.0) -> dict[str, Any]:
    request = {
        "user": "nobody",
        "commands": {name: {"argv": argv, "seconds": seconds} for name, argv in commands.items()},
    }
    found: dict[str, Any] = site_questions.commands(request)["answers"]
    return found


def test_commands_run_without_a_shell_and_report_exit_codes() -> None:
    found = answers_of({"a": ["echo", "$HOME; id"], "b": ["false"], "c": ["no-such-program"]})
    assert found["a"] == {"code": 0, "output": "$HOME; id\n\n", "why": ""}
    assert (found["b"]["code"], found["b"]["why"]) == (1, "")
    assert found["c"]["code"] == 127
    assert found["c"]["why"].startswith("no-such-program cannot be run: ")


def test_time_and_output_are_limited() -> None:
    began = time.monotonic()
    slow = {f"s{number}": ["sleep", "60"] for number in range(8)}
    found = answers_of({**slow, "y": ["yes"]}, seconds=1.0)
    assert time.monotonic() - began < 10
    assert found["s0"] == {"code": None, "output": "", "why": "sleep did not answer within 1 s"}
    assert found["y"]["code"] is None
    found = answers_of({"long": ["head", "-c", "100000", "/dev/zero"]})
    assert (found["long"]["code"], len(found["long"]["output"])) == (0, site_questions.SHOWN)


def test_number_of_commands_is_limited() -> None:
    many = {str(number): ["true"] for number in range(site_questions.MOST_COMMANDS + 3)}
    assert len(answers_of(many)) == site_questions.MOST_COMMANDS


def test_commands_run_without_root_and_cannot_gain_privileges() -> None:
    found = answers_of({"who": ["id", "-un"], "gain": ["grep", "NoNewPrivs", "/proc/self/status"]})
    assert found["who"]["output"].strip() == ("nobody" if os.getuid() == 0 else ME)
    assert found["gain"]["output"].split() == ["NoNewPrivs:", "1"]


@pytest.mark.parametrize("user", ["root", "nobody-has-this-name"])
def test_no_command_runs_if_there_is_no_unprivileged_user(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    request = {"user": user, "commands": {"a": {"argv": ["true"], "seconds": 1}}}
    [found] = site_questions.commands(request)["answers"].values()
    assert found["code"] is None
    assert user in found["why"]
