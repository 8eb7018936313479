"""Launch on 250 stub nodes over Ansible's SSH connections, in a process that is limited to 1024 open files."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

NODES = 250
NEEDED = 1378
ROOMS = ("plugins/module_utils", "plugins/plugin_utils", "tests", "tests/standins")


def supervised(folder: Path, soft: int, hard: int) -> dict[str, Any]:
    """Run the launch and return its result. The stub nodes end the launch after 20 s."""
    program = [sys.executable, str(ROOT / "tests/standins/many_nodes.py"), str(folder), str(NODES), "20"]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard <= before[1], "this machine's limit of open files is too low for the test"
    done = subprocess.run(
        ["prlimit", f"--nofile={soft}:{hard}", *program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / room) for room in ROOMS)},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_file_limit_is_raised_and_threads_are_bounded(tmp_path: Path) -> None:
    seen = supervised(tmp_path, 1024, 4096)
    assert (seen["ending"], seen["unseen"], seen["said"]) == ("FINISHED", [], [])
    assert seen["files"] == NEEDED
    assert seen["threads"] < NODES + 10
    assert seen["megabytes"] < 300
    assert seen["looks"] > NODES


def test_launch_is_refused_if_the_file_limit_is_too_low(tmp_path: Path) -> None:
    seen = supervised(tmp_path, 1024, 1024)
    need = f"a launch on {NODES} nodes needs {NEEDED} open files on the controller, but the limit is 1024"
    assert seen["ending"] == [need]
    assert seen["looks"] == 0
