"""Run apt-get on a node, and update its package lists."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.nvidia_driver.apt import parse

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds to wait for other package managers.
LOCK_SECONDS = 300
# This option makes apt wait for the lock of packages; apt has no option to wait for the lock of lists.
LOCK_OPTION = f"--option=DPkg::Lock::Timeout={LOCK_SECONDS}"
LISTS_LOCKED, LISTS_PAUSE = "Could not get lock", 5
# During a mirror sync or a release, lists and packages are inconsistent for minutes.
OUT_OF_STEP = ("Hash Sum mismatch", "unexpected size", "Mirror sync in progress")
ATTEMPTS, PAUSE = 3, 20


def run(*argv: str, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a package tool without prompts and with English output."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, cwd=cwd)


def apt_get(*argv: str, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    return run("apt-get", LOCK_OPTION, *argv, cwd=cwd)


def update(*options: str) -> subprocess.CompletedProcess[str]:
    """Wait for other users of apt's package lists, then update the lists."""
    argv = ("update", "--quiet", *options)
    done = apt_get(*argv)
    deadline = time.monotonic() + LOCK_SECONDS
    while LISTS_LOCKED in done.stderr and time.monotonic() < deadline:
        time.sleep(LISTS_PAUSE)
        done = apt_get(*argv)
    return done


def install(*packages: str) -> subprocess.CompletedProcess[str]:
    """Update the package lists, then install packages. Images ship without lists, and old lists name versions that
    mirrors have removed.

    If lists cannot be downloaded, apt keeps the old lists, which might be sufficient for these packages.
    """
    update()
    return apt_get("install", "--yes", "--no-install-recommends", *packages)


def predict(*packages: str) -> dict[str, Any]:
    """Return what apt would install with its present lists, for the key `changes` of a result in check mode."""
    argv = ("install", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages")
    done = apt_get(*argv, "--simulate", *packages)
    answer = parse(done.stdout, done.stderr, done.returncode)
    if answer.errors:
        why = "are not known before apt has read its package lists"
        return {"unknown": [f"the dependencies of {', '.join(packages)}, and the size of the download, {why}"]}
    # A line per file that is not in apt's cache: 'URL' file size hash
    files = apt_get(*argv, "--print-uris", "--yes", "--quiet=2", *packages).stdout.splitlines()
    sizes = [line.split()[2] for line in files if line.startswith("'") and len(line.split()) > 2]
    return {"package": [*answer.installs], "download": sum(int(size) for size in sizes if size.isdecimal())}


def read_lists(sources: str, complaints: Callable[[subprocess.CompletedProcess[str]], list[str]]) -> list[str]:
    """Update only the lists of this source file, because third-party sources are sometimes broken for a long time.

    Return the errors that persist after all attempts. complaints: function that finds the errors in apt-get's result.
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
