"""First login: problems with Python and sudo are explained in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cases import cases
from muster.onboard import contact

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = "/usr/bin/python3"
OTTO = (
    "login as otto failed: no key or password was accepted. Add --ask-pass to the command, or correct the user"
    " (ansible_user)"
)


@cases(__file__, "contact")
def test_problem_with_a_machine_is_explained_in_one_sentence(case: dict[str, Any]) -> None:
    login = contact.read(case["said"], PYTHON)
    assert (login is None) == case.get("unreadable", False)
    if login is not None:
        problem = contact.python_problem(login)
        if not problem and "root" in case:
            problem = contact.sudo_problem(login, case["root"])
        assert problem == case.get("problem", "")


@pytest.mark.parametrize(
    ("why", "user", "sentence"),
    [
        (
            "Failed to connect to the host via ssh: otto@10.0.0.9: Permission denied (publickey,password).",
            "otto",
            OTTO,
        ),
        (
            "Invalid/incorrect password: Permission denied, please try again.",
            "",
            OTTO.replace("otto", "this user"),
        ),
        ("connect to host 10.0.0.9 port 22: No route to host.", "otto", None),
    ],
)
def test_failed_login_is_explained(why: str, user: str, sentence: str | None) -> None:
    expected = sentence or "not reachable over SSH: connect to host 10.0.0.9 port 22: No route to host"
    assert contact.not_reached(why, user) == expected


@pytest.mark.parametrize("explain", [contact.python_problem, lambda login: contact.sudo_problem(login, "x" * 1000)])
def test_output_of_a_machine_is_limited(explain: Callable[[contact.FirstLogin], str]) -> None:
    long = f"muster.python {'9' * 9000}\nmuster.said {'x' * 9000}\n{'muster.other y' * 9000}"
    login = contact.read(f"muster.uid 0\nmuster.sudo 1\n{long}", PYTHON)
    assert login is not None
    assert len(login.python) <= 300
    assert len(login.others) <= 5
    assert len(explain(login)) < 3000
