"""Evaluate the first login to a machine: whether Python and sudo are usable."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..verdict import access
from ..verdict.commands import shell, vault

OLDEST_PYTHON = (3, 10)
DENIED = ("Permission denied", "Authentication failure", "Invalid/incorrect password")
# Messages of sudo 1.9 with LC_ALL=C.
NOT_IN_SUDOERS = ("is not in the sudoers file", "may not run sudo", "is not allowed to")
WANTS_PASSWORD = ("a password is required", "Missing sudo password")
NO_COMMAND = 127
# The lines are from an unknown machine, and sentences and commands contain their values.
FORMS = {
    "muster.user": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@$\\-]{0,63}"),
    "muster.python": re.compile(r"\d{1,4}\.\d{1,4}", re.ASCII),
    "muster.other": re.compile(r"/usr/(?:local/)?bin/python3\.[a-z0-9.-]{1,20}"),
}


@dataclass(frozen=True)
class FirstLogin:
    """user, uid: of the account that logged in. python: version of the interpreter that Ansible uses; "" if it is
    missing.

    others: other installed Python interpreters. sudo, said: exit code and output of `sudo -n true`.
    """

    user: str = ""
    uid: int = -1
    interpreter: str = ""
    python: str = ""
    others: tuple[str, ...] = ()
    sudo: int = 0
    said: str = ""


def read(text: str, interpreter: str) -> FirstLogin | None:
    """Parse the lines that the shell printed. Return None for any other output."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines()[:100]:
        word, _, rest = line.strip().partition(" ")
        value = rest.strip()[:300]
        if word not in FORMS or FORMS[word].fullmatch(value):
            found.setdefault(word, []).append(value)
    uid, code = found.get("muster.uid", [""])[0], found.get("muster.sudo", [""])[0]
    if not uid.isdecimal() or not code.isdecimal():
        return None
    return FirstLogin(
        found.get("muster.user", [""])[0],
        int(uid),
        interpreter,
        found.get("muster.python", [""])[0],
        tuple(found.get("muster.other", [])[:5]),
        int(code),
        found.get("muster.said", [""])[0],
    )


def not_reached(why: str, user: str) -> str:
    """Return why the login failed. why: the message of ssh or Ansible."""
    if any(words in why for words in DENIED):
        return (
            f"login as {user or 'this user'} failed: no key or password was accepted. Add --ask-pass to the command,"
            " or correct the user (ansible_user)"
        )
    return f"not reachable over SSH: {why.rstrip('.')}"


def python_problem(login: FirstLogin) -> str:
    """Return the problem with Python; "" if there is none."""
    wanted = ".".join(map(str, OLDEST_PYTHON))
    if not login.python:
        others = f" (present: {', '.join(login.others)})" if login.others else ""
        return (
            f"{login.interpreter} is missing{others}; Muster requires Python {wanted} or newer. Install it (apt-get"
            " install python3), or set ansible_python_interpreter in the inventory to a newer Python"
        )
    if tuple(map(int, login.python.split("."))) < OLDEST_PYTHON:
        return (
            f"{login.interpreter} is Python {login.python}; Muster requires {wanted} or newer. Use Ubuntu 22.04,"
            " Debian 12 or newer, or set ansible_python_interpreter in the inventory to a newer Python"
        )
    return ""


def sudo_problem(login: FirstLogin, why: str) -> str:
    """Return the problem with sudo after Python could not be run as root. why: the error."""
    user = login.user or "the login user"
    if login.sudo == NO_COMMAND:
        need = "sudo is missing; Muster requires sudo, also for logins as root"
        return f"{need}. Run as root on the node, for {user}: apt-get install sudo"
    if any(words in why for words in NOT_IN_SUDOERS) or any(words in login.said for words in NOT_IN_SUDOERS):
        return f"{user} has no sudo rights. Run as root on the node: {shell('usermod -aG sudo {user}', user=user)}"
    if any(words in why for words in WANTS_PASSWORD):
        return (
            f"The password of {user} is required for sudo. Add --ask-become-pass to the command, or set"
            f" ansible_become_password in the inventory, encrypted with: {vault()}. If {user} has no sudo rights,"
            " run as root on the node:"
            f" {shell('usermod -aG sudo {user}', user=user)}"
        )
    what, fix = access.explain(why)
    return f"{what}. {fix}" if what else f"{user} cannot become root: {why}"
