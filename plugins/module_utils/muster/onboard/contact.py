"""First login: whether a machine can be taken on as it is, from what a shell there says; else one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from ..verdict import access
from ..verdict.commands import shell, vault

OLDEST_PYTHON = (3, 10)
DENIED = ("Permission denied", "Authentication failure", "Invalid/incorrect password")
# sudo's own words (1.9), under LC_ALL=C.
NOT_IN_SUDOERS = ("is not in the sudoers file", "may not run sudo", "is not allowed to")
WANTS_PASSWORD = ("a password is required", "Missing sudo password")
NO_COMMAND = 127


@dataclass(frozen=True)
class FirstLogin:
    """user, uid: who logs in. python: the version of the interpreter that Ansible uses, "" where there is none.

    others: other Pythons that are there. sudo, said: the code with which `sudo -n true` ended, and what it said.
    """

    user: str = ""
    uid: int = -1
    interpreter: str = ""
    python: str = ""
    others: tuple[str, ...] = ()
    sudo: int = 0
    said: str = ""


def read(text: str, interpreter: str) -> FirstLogin | None:
    """Of the lines that the shell printed; None where it is something else."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines()[:100]:
        word, _, rest = line.strip().partition(" ")
        found.setdefault(word, []).append(rest.strip()[:300])
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
    """Why nobody could log in, for people. why: what ssh or Ansible said."""
    if any(words in why for words in DENIED):
        return (
            f"nobody can log in as {user or 'this user'}: it takes neither your key nor a password. Add --ask-pass to"
            " the command, or correct the user (ansible_user)"
        )
    return f"it cannot be reached over ssh: {why.rstrip('.')}"


def python_problem(login: FirstLogin) -> str:
    """What is wrong with its Python; "" when it is new enough."""
    wanted = ".".join(map(str, OLDEST_PYTHON))
    if not login.python:
        others = f" ({', '.join(login.others)} is there)" if login.others else ""
        return (
            f"it has no {login.interpreter}{others}, and Muster needs Python {wanted} or newer. Install it there"
            " (apt-get install python3), or name another one in the inventory: ansible_python_interpreter"
        )
    numbers = tuple(int(part) for part in login.python.split(".")[:2] if part.isdecimal() and len(part) < 5)
    if numbers < OLDEST_PYTHON:
        return (
            f"its {login.interpreter} is Python {login.python}, and Muster needs {wanted} or newer. Ubuntu 22.04,"
            " Debian 12 and newer have it; another one can be named in the inventory: ansible_python_interpreter"
        )
    return ""


def sudo_problem(login: FirstLogin, why: str) -> str:
    """What is wrong with sudo, where root's Python could not be run. why: what came of that."""
    user = login.user or "who logs in"
    if login.sudo == NO_COMMAND:
        need = "it has no sudo, which Muster needs, also where root logs in"
        return f"{need}. As root there: apt-get install sudo, for {user}"
    if any(words in why for words in NOT_IN_SUDOERS) or any(words in login.said for words in NOT_IN_SUDOERS):
        return f"{user} may not use sudo there. As root on the node: {shell('usermod -aG sudo {user}', user=user)}"
    if any(words in why for words in WANTS_PASSWORD):
        return (
            f"sudo asks {user} for a password there. Add --ask-become-pass to the command, or keep it in the inventory"
            f" as ansible_become_password, encrypted with: {vault()}. If {user} has no sudo at all, as root on the"
            f" node: {shell('usermod -aG sudo {user}', user=user)}"
        )
    what, fix = access.explain(why)
    return f"{what}. {fix}" if what else f"{user} cannot become root there: {why}"
