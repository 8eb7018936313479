"""Ports of the node's sshd. Every user can give a process the name sshd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from muster_node.programs import firewall
from muster_node.tools import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LISTEN = (
    "import ctypes, socket, sys; ctypes.CDLL(None).prctl(15, b'sshd', 0, 0, 0);"
    " one = socket.create_server(('127.0.0.1', 0)); print(one.getsockname()[1], flush=True); sys.stdin.read()"
)


@pytest.fixture
def listening() -> Iterator[Callable[[str], int]]:
    """Return a function that starts a program named sshd and returns its port."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str) -> int:
        env = {**os.environ, "PYTHONHOME": sys.base_prefix}
        argv = ["sshd", "-I", "-c", LISTEN]
        one = subprocess.Popen(
            argv, executable=program, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(one)
        assert one.stdout
        return int(one.stdout.readline())

    yield start
    for one in started:
        one.communicate("")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read the sockets of other users")
def test_only_the_installed_sshd_of_root_counts(
    listening: Callable[[str], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "sshd"
    shutil.copy(os.path.realpath(sys.executable), real)
    monkeypatch.setattr(firewall, "SSHD", str(real))
    ours, named = listening(str(real)), listening(os.path.realpath(sys.executable))
    assert {ours, named} & {*firewall.sshd_ports()} == {ours}
    monkeypatch.setattr(process, "user_id", lambda _: 1000)
    assert firewall.sshd_ports() == []


@pytest.mark.parametrize(
    ("unit", "program", "counts"),
    [
        ("ssh.service", "/usr/sbin/sshd (deleted)", True),
        ("ssh.service", "/opt/site/sshd", True),
        ("ssh.service", "/usr/bin/python3", False),
        ("docker-1f.scope", "/usr/sbin/sshd", False),
    ],
)
def test_another_sshd_counts_only_in_the_unit(
    unit: str, program: str, *, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {"user_id": 0, "executable": program, "outermost_unit": unit}
    for name, value in seen.items():
        monkeypatch.setattr(process, name, lambda _, value=value: value)
    assert firewall.is_sshd(1 << 30) is counts
