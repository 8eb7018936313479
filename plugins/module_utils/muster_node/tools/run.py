"""Running a program and reading a file on a stranger's machine: whatever cannot be had is said, and never an error."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

SECONDS = 6.0
# Sixteen GPUs list a megabyte of clocks that they could run at.
MOST_CHARACTERS = 4_000_000
# An ordinary user's path lacks the last two on Debian.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Answer:
    """What came, and why nothing came. A program may fail and still have said something: then both are there.

    aside: what it said on its error stream.
    """

    text: str
    why: str = ""
    aside: str = ""


def run(*argv: str, stdin: str = "", seconds: float = SECONDS) -> Answer:
    """Run a program, and leave it where it is when it hangs: waiting for one that the kernel holds would hang too."""
    environment = {"PATH": PATH, "LC_ALL": "C.UTF-8"}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except FileNotFoundError:
        return Answer("", f"{argv[0]} is not there")
    except OSError as error:
        return Answer("", f"{argv[0]} cannot be run: {error.strerror}")
    try:
        out, err = process.communicate(stdin.encode(), timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return Answer("", f"{argv[0]} did not answer within {seconds:.0f} s")
    text = out.decode("utf-8", "replace")[:MOST_CHARACTERS]
    aside = err.decode("utf-8", "replace")[:MOST_CHARACTERS]
    if process.returncode == 0:
        return Answer(text, aside=aside)
    said = aside.split("\n")[0].strip()[:200]
    return Answer(text, f"{argv[0]} ended with {process.returncode}" + (f": {said}" if said else ""), aside)


def read(path: str) -> Answer:
    """Read a small file."""
    try:
        with Path(path).open("rb") as stream:
            return Answer(stream.read(MOST_CHARACTERS).decode("utf-8", "replace"))
    except OSError as error:
        return Answer("", f"{path}: {error.strerror}")


def names(folder: str) -> list[str]:
    """Return what a folder holds, or nothing where it cannot be read."""
    try:
        return sorted(path.name for path in Path(folder).iterdir())
    except OSError:
        return []
