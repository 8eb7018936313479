"""Files of the acceptance test are either complete or rejected. A failed write leaves the previous file unchanged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from payload_parts import part

if TYPE_CHECKING:
    from pathlib import Path

whole_file = part("whole_file")
CONTENT = b"first line\nand the rest\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint-000001.pt"
    assert whole_file.write(path, CONTENT) == path.stat().st_size
    return path


def test_written_content_is_read_back(path: Path) -> None:
    assert whole_file.read(path) == CONTENT
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_empty_content_is_valid(tmp_path: Path) -> None:
    whole_file.write(tmp_path / "empty.pt", b"")
    assert whole_file.read(tmp_path / "empty.pt") == b""


def test_truncated_file_is_rejected_at_any_length(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(whole_file.TornError, match=r"^(has no head|has \d+ of 24 bytes)$"):
            whole_file.read(path)


def test_flipped_bit_is_detected(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[-3] ^= 1
    path.write_bytes(whole)
    with pytest.raises(whole_file.TornError, match=r"^has other bytes than were written$"):
        whole_file.read(path)


def test_newest_complete_file_is_used_and_truncated_files_are_named(path: Path) -> None:
    newer = path.with_name("checkpoint-000002.pt")
    whole_file.write(newer, CONTENT + b"more")
    os.truncate(newer, newer.stat().st_size - 1)
    refused = ["checkpoint-000002.pt has 27 of 28 bytes"]
    assert whole_file.newest(path.parent, "checkpoint-*.pt") == (path.name, CONTENT, refused)


def test_empty_folder_contains_no_usable_file(tmp_path: Path) -> None:
    assert whole_file.newest(tmp_path, "checkpoint-*.pt") == ("", None, [])


def test_failed_write_keeps_the_previous_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        whole_file.write(path, b"another")
    assert whole_file.read(path) == CONTENT
    assert [file.name for file in path.parent.iterdir()] == [path.name]
