"""Limits of the controller for files and processes, tested in a separate process with lower limits."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from muster_controller.nodes.own_limits import explained, room_for_processes

ROOT = Path(__file__).parents[4]
PROGRAM = """
import resource, sys
sys.path[:0] = ["plugins/module_utils", "plugins/plugin_utils"]
from muster_controller.nodes.own_limits import raise_for
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(raise_for(250).files, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def granted(soft: int, hard: int) -> list[int]:
    argv = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=ROOT)
    return [int(word) for word in done.stdout.split()]


def test_soft_limit_is_raised_as_needed_up_to_the_hard_limit() -> None:
    assert granted(1024, 4096) == [1378, 1378, 4096]
    assert granted(256, 512) == [512, 512, 512]
    assert granted(2048, 4096) == [2048, 2048, 4096]


def test_reached_limit_of_the_controller_is_explained() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert explained("OSError: [Errno 24] Too many open files") == (
        f"the controller's limit of {soft} open files is too low; to raise it, run ulimit -n {2 * soft}"
        " (OSError: [Errno 24] Too many open files)"
    )
    assert explained("No route to host") == "No route to host"


def test_free_processes_are_read_from_the_control_group(tmp_path: Path) -> None:
    own, group = tmp_path / "own", tmp_path / "user.slice"
    group.mkdir()
    own.write_text("9:name=systemd:/\n0::/user.slice\n")
    (group / "pids.current").write_text("10\n")
    (group / "pids.max").write_text("max\n")
    assert room_for_processes(tmp_path, own) is None
    (group / "pids.max").write_text("100\n")
    assert room_for_processes(tmp_path, own) == 90
    assert room_for_processes(tmp_path / "nowhere", own) is None
