"""The copy of a log on the controller: size limit, marked gaps, and write errors."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from muster_controller.artifacts.keeping import Keeping
from muster_controller.launch import logs
from muster_controller.launch.logs import KeptLog

if TYPE_CHECKING:
    from pathlib import Path


def test_short_log_is_stored_unchanged(tmp_path: Path) -> None:
    log = KeptLog(tmp_path / "rank0.stdout.log", 4000)
    log.add(b"one\n")
    log.add(b"two\n")
    assert log.path.read_bytes() == b"one\ntwo\n"  # written at once, for readers that follow the file
    log.finish()
    assert log.path.read_bytes() == b"one\ntwo\n"
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_beginning_and_end_of_a_long_log_are_stored(tmp_path: Path) -> None:
    log = KeptLog(tmp_path / "rank0.stdout.log", 4000)
    lines = [b"%06d\n" % number for number in range(10_000)]
    for line in lines:
        log.add(line)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4000
    log.finish()
    [path] = tmp_path.iterdir()
    beginning, gap, end = path.read_bytes().partition(b"\n... ")
    said, _, end = end.partition(b" missing here ...\n")
    assert gap
    assert b"".join(lines).startswith(beginning)
    assert b"".join(lines).endswith(end)
    assert (len(beginning), 1000 <= len(end) <= 2000) == (2000, True)
    assert said == b"%.3g kB" % ((70_000 - len(beginning) - len(end)) / 1000)


def test_chunk_larger_than_the_limit_is_truncated(tmp_path: Path) -> None:
    log = KeptLog(tmp_path / "x.log", 400)
    log.add(b"a" * 200 + b"b" * 1_000_000 + b"c" * 100)
    log.finish()
    assert log.path.read_bytes() == b"a" * 200 + b"\n... 1 MB missing here ...\n" + b"c" * 100


def test_gap_reported_by_the_node_is_marked(tmp_path: Path) -> None:
    log = KeptLog(tmp_path / "x.log", 4000)
    log.add(b"one\n")
    log.add(b"two\n", gap=5000)
    assert log.path.read_bytes() == b"one\n\n... 5 kB missing here ...\ntwo\n"


def test_gap_from_a_full_disk_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = [3, 0]
    real = os.write

    def write(handle: int, data: bytes) -> int:
        if not room:
            return real(handle, data)
        if not (taken := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data[:taken])

    monkeypatch.setattr("muster_controller.artifacts.private_files.os.write", write)
    log = KeptLog(tmp_path / "x.log", 4000)
    with pytest.raises(OSError, match="No space left"):
        log.add(b"one\n" * 300)
    log.add(b"two\n")
    assert log.path.read_bytes() == b"one\n... 1.2 kB missing here ...\ntwo\n"


def test_link_in_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    log = KeptLog(tmp_path / "x.log", 400)
    (tmp_path / "x.log").symlink_to(tmp_path / "elsewhere")
    log.add(b"x")
    assert (tmp_path / "x.log").read_bytes() == b"x"
    (tmp_path / "x.log").unlink()
    (tmp_path / "x.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        log.add(b"x")
    assert not (tmp_path / "elsewhere").exists()


# ---------------------------------------------------------------- write errors


def raising(error: BaseException) -> Any:
    def write() -> None:
        raise error

    return write


def test_write_error_is_reported_once_per_reason(tmp_path: Path) -> None:
    said: list[str] = []
    keeping = Keeping(said.append)
    full = OSError(errno.ENOSPC, "No space left on device")
    for error in (full, full, PermissionError(errno.EACCES, "Permission denied"), MemoryError(), full):
        keeping.keep(tmp_path / "x", raising(error))
    keeping.finish()
    end = "; the launch continues (shown once)"
    assert said == [
        f"{tmp_path}/x could not be written: No space left on device{end}",
        f"{tmp_path}/x could not be written: Permission denied{end}",
        f"{tmp_path}/x could not be written: MemoryError{end}",
    ]
    assert keeping.surely(tmp_path / "x", raising(full)) == "No space left on device"
    assert keeping.surely(tmp_path / "x", (tmp_path / "x").touch) == ""
    assert (tmp_path / "x").exists()


def test_hanging_file_system_does_not_block_the_launch(tmp_path: Path) -> None:
    said: list[str] = []
    keeping = Keeping(said.append)
    gate = threading.Event()
    assert keeping.keep(tmp_path / "x", lambda: gate.wait(300), keeping.aside.room)
    assert not keeping.keep(tmp_path / "logs/x", raising(AssertionError()), 10)
    assert [sentence.partition(";")[0] for sentence in said] == [
        f"files for {tmp_path}/logs are not written: the file system is slow or hangs"
    ]
    assert keeping.surely(tmp_path / "w", lambda: None, 0.01) == "the file system did not respond within 0 s"
    gate.set()
    assert keeping.surely(tmp_path / "v", lambda: None, 300) == ""


def test_gap_marker_states_the_missing_size() -> None:
    assert logs.gap_line(12) == b"\n... 12 bytes missing here ...\n"
