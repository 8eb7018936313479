"""Size limit of logs that processes are still writing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from muster_node.launch import capping
from muster_node.launch.capping import BLOCK, Cap

if TYPE_CHECKING:
    from pathlib import Path

MOST = 1 << 20
# Writes as many bytes as a log may have for each byte on stdin, and confirms on stderr.
WRITER = f"""
import os
while os.read(0, 1):
    os.write(1, b"x" * {MOST})
    os.write(2, b"x")
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs/agent.log"
    path.touch()
    return path


def allocated(path: Path) -> int:
    return path.stat().st_blocks * BLOCK


def test_middle_of_a_large_log_is_freed(log: Path, tmp_path: Path) -> None:
    log.write_bytes(b"head" + b"x" * (8 * MOST) + b"tail")
    cap = Cap(str(tmp_path), MOST)
    cap.look()
    assert allocated(log) <= MOST
    assert log.stat().st_size == 8 * MOST + 8
    content = log.read_bytes()
    assert content.startswith(b"head" + b"x" * (MOST // 5))
    assert content.endswith(b"x" * (MOST // 3) + b"tail")
    assert cap.notes == []


def test_log_stays_limited_while_a_process_writes(log: Path, tmp_path: Path) -> None:
    cap = Cap(str(tmp_path), MOST)
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.PIPE
        ) as writer,
    ):
        assert writer.stdin
        assert writer.stderr
        for _ in range(16):
            writer.stdin.write(b"x")
            writer.stdin.flush()
            writer.stderr.read(1)
            cap.keep(0.0)
            assert allocated(log) <= MOST
        writer.stdin.close()
    assert log.stat().st_size == 16 * MOST


def test_log_without_a_limit_is_unchanged(log: Path, tmp_path: Path) -> None:
    log.write_bytes(b"x" * MOST)
    Cap(str(tmp_path), 0).keep(0.0)
    assert allocated(log) >= MOST


def test_fast_growing_log_is_checked_sooner(log: Path, tmp_path: Path) -> None:
    cap = Cap(str(tmp_path), MOST)
    assert cap.look() == capping.PAUSE
    log.write_bytes(b"x" * (MOST // 2))
    cap.looked -= 0.01
    assert cap.look() < capping.PAUSE


def test_unsupported_file_system_is_reported(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capping, "punch_hole", lambda *_: errno.EOPNOTSUPP)
    log.write_bytes(b"x" * (2 * MOST))
    cap = Cap(str(tmp_path), MOST)
    cap.look()
    cap.look()
    assert cap.notes == ["log limit not enforced (launch_log_max_mb): Operation not supported"]


def test_links_and_pipes_are_skipped(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * (4 * MOST))
    log.unlink()
    log.symlink_to(other)
    rank = tmp_path / "logs/torchrun/job/attempt_0/0"
    rank.mkdir(parents=True)
    os.mkfifo(rank / "stdout.log")
    (rank / "stderr.log").symlink_to(other)
    Cap(str(tmp_path), MOST).look()
    assert allocated(other) >= 4 * MOST
