"""apt-get on a node: the one way to run it, and to have it read its lists."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds to wait for whoever is at work with packages.
LOCK_SECONDS = 300
# apt waits for the lock of packages when it is asked to, and never for that of lists.
LOCK_OPTION = f"--option=DPkg::Lock::Timeout={LOCK_SECONDS}"
LISTS_LOCKED, LISTS_PAUSE = "Could not get lock", 5
# While a mirror is being filled, or a release published, lists and what they speak of are out of step for minutes.
OUT_OF_STEP = ("Hash Sum mismatch", "unexpected size", "Mirror sync in progress")
ATTEMPTS, PAUSE = 3, 20


def run(*argv: str, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of the packages; it asks nobody, and says what it says in English."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, cwd=cwd)


def apt_get(*argv: str, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    return run("apt-get", LOCK_OPTION, *argv, cwd=cwd)


def update(*options: str) -> subprocess.CompletedProcess[str]:
    """Have apt read its lists, when nobody else reads them."""
    argv = ("update", "--quiet", *options)
    done = apt_get(*argv)
    deadline = time.monotonic() + LOCK_SECONDS
    while LISTS_LOCKED in done.stderr and time.monotonic() < deadline:
        time.sleep(LISTS_PAUSE)
        done = apt_get(*argv)
    return done


def install(*packages: str) -> subprocess.CompletedProcess[str]:
    """Install packages, behind new lists: an image comes without any, and old ones name what is gone from a mirror.

    Of lists that cannot be read apt keeps the old ones, and what it is asked for may not be of theirs.
    """
    update()
    return apt_get("install", "--yes", "--no-install-recommends", *packages)


def read_lists(sources: str, complaints: Callable[[subprocess.CompletedProcess[str]], list[str]]) -> list[str]:
    """Have apt read the lists of this one file of sources: what others have written may be broken for long.

    complaints: what is wrong, read from how apt-get ended. It is returned when waiting does not help.
    """
    options = ["--option=APT::Get::List-Cleanup=0"]
    options += [f"--option=Dir::Etc::sourcelist={sources}", "--option=Dir::Etc::sourceparts=/dev/null"]
    wrong: list[str] = []
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE)
        wrong = complaints(update(*options))
        if not any(sign in line for line in wrong for sign in OUT_OF_STEP):
            break
    return wrong
