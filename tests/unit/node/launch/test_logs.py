"""Logs and error files of a launch as returned to the controller."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import logs
from muster_node.launch.capping import punch_hole
from muster_node.tools import files

if TYPE_CHECKING:
    from pathlib import Path


def log(run_dir: Path, name: str, data: bytes) -> None:
    path = run_dir / "torchrun/job_x/attempt_0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        stream.write(data)


def text(run_dir: Path, limit: int = 1000, **offsets: int) -> dict[str, Any]:
    with files.folder(str(run_dir)) as within:
        found: dict[str, Any] = logs.new_log_text(within, os.getuid(), offsets, limit)
    return found


def errors(run_dir: Path) -> dict[str, Any]:
    with files.folder(str(run_dir)) as within:
        return logs.error_files(within, os.getuid())


def test_log_text_after_the_offsets_is_returned(tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_text("one\ntwo\n")
    log(tmp_path, "1/stdout.log", b"step 1\n")
    assert text(tmp_path, agent=4) == {
        "agent": {"begin": 4, "gap": 0, "offset": 8, "text": "two\n", "more": False},
        "1/stdout": {"begin": 0, "gap": 0, "offset": 7, "text": "step 1\n", "more": False},
    }
    assert text(tmp_path, agent=8, **{"1/stdout": 7}) == {}


def test_missing_logs_are_returned_as_empty(tmp_path: Path) -> None:
    assert text(tmp_path) == {}


def test_limited_text_ends_at_a_line_and_reports_more(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"12345\n" * 10)
    assert text(tmp_path, limit=20)["0/stdout"] == {
        "begin": 0,
        "gap": 0,
        "offset": 18,
        "text": "12345\n" * 3,
        "more": True,
    }


def test_line_longer_than_the_limit_is_split(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"=" * 50)
    assert text(tmp_path, limit=20)["0/stdout"] == {"begin": 0, "gap": 0, "offset": 20, "text": "=" * 20, "more": True}


def test_stderr_is_returned_despite_a_large_stdout(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"12345\n" * 10)
    log(tmp_path, "7/stderr.log", b"the reason\n")
    assert text(tmp_path, limit=20)["7/stderr"]["text"] == "the reason\n"


@pytest.mark.parametrize("limit", [11, 12])
def test_log_beyond_the_limit_reports_more(tmp_path: Path, limit: int) -> None:
    log(tmp_path, "7/stderr.log", b"the reason\n")
    log(tmp_path, "0/stdout.log", b"12345\n")
    parts = text(tmp_path, limit=limit)
    assert parts["7/stderr"] == {"begin": 0, "gap": 0, "offset": 11, "text": "the reason\n", "more": False}
    assert parts["0/stdout"]["more"] is True
    assert text(tmp_path, **{"7/stderr": 11, "0/stdout": parts["0/stdout"]["offset"]})["0/stdout"]["text"]


def test_multibyte_characters_are_not_split(tmp_path: Path) -> None:
    beach = "\N{BEACH WITH UMBRELLA}".encode()
    log(tmp_path, "0/stdout.log", b"x" + beach[:2])
    first = text(tmp_path)["0/stdout"]
    assert first == {"begin": 0, "gap": 0, "offset": 1, "text": "x", "more": False}
    log(tmp_path, "0/stdout.log", beach[2:])
    assert text(tmp_path, **{"0/stdout": 1})["0/stdout"]["text"] == beach.decode()


def test_log_ending_within_a_character_is_read_completely(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"\xe2")
    assert text(tmp_path)["0/stdout"] == {"begin": 0, "gap": 0, "offset": 1, "text": "\ufffd", "more": False}


def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"\xff\x00ok\n")
    assert text(tmp_path)["0/stdout"] == {"begin": 0, "gap": 0, "offset": 5, "text": "\ufffd\x00ok\n", "more": False}


def test_progress_bar_is_split_at_carriage_returns(tmp_path: Path) -> None:
    log(tmp_path, "0/stderr.log", b"10%\r20%\r30%\r")
    part = text(tmp_path, limit=10)["0/stderr"]
    assert (part["text"], part["more"]) == ("10%\r20%\r", True)


def test_punched_hole_is_reported_as_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    path.write_bytes(b"head\n" + b"x" * (1 << 20) + b"tail\n")
    with path.open("r+b") as stream:
        assert punch_hole(stream.fileno(), 4096, 1 << 19) == 0
    size, end = path.stat().st_size, 4096 + (1 << 19)
    head = text(tmp_path, limit=1 << 22)["agent"]
    assert (head["begin"], head["gap"], head["offset"], head["more"]) == (0, 0, 4096, True)
    tail = text(tmp_path, limit=1 << 22, agent=4096)["agent"]
    assert (tail["begin"], tail["gap"], tail["offset"], tail["more"]) == (4096, 1 << 19, size, False)
    assert tail["text"] == "x" * (size - 5 - end) + "tail\n"
    within_the_gap = text(tmp_path, limit=1 << 22, agent=5000)["agent"]
    assert (within_the_gap["gap"], within_the_gap["text"]) == (end - 5000, tail["text"])


def test_log_without_data_is_reported_as_one_gap(tmp_path: Path) -> None:
    with (tmp_path / "agent.log").open("wb") as stream:
        stream.truncate(1 << 40)
    assert text(tmp_path, agent=5)["agent"] == {
        "begin": 5,
        "gap": (1 << 40) - 5,
        "offset": 1 << 40,
        "text": "",
        "more": False,
    }


def test_folders_without_rank_numbers_are_ignored(tmp_path: Path) -> None:
    for name in ("x", "-1", "01", "9999", "1e3", "\N{SUPERSCRIPT TWO}", "\N{FULLWIDTH DIGIT ONE}", "1 "):
        log(tmp_path, f"{name}/stdout.log", b"x\n")
        log(tmp_path, f"{name}/error.json", b"{}")
    assert text(tmp_path) == {}
    assert errors(tmp_path) == {}


def test_only_valid_error_files_are_returned(tmp_path: Path) -> None:
    log(tmp_path, "0/error.json", b'{"message": "x"}')
    log(tmp_path, "1/error.json", b'{"message": ')
    assert errors(tmp_path) == {"0": {"message": "x"}}


def test_links_and_pipes_in_log_folders_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"for": "root alone"}')
    run_dir = tmp_path / "run"
    log(run_dir, "0/stdout.log", b"its own\n")
    (run_dir / "agent.log").symlink_to(secret)
    attempt = run_dir / "torchrun/job_x/attempt_0"
    (attempt / "0/stderr.log").symlink_to(secret)
    (attempt / "0/error.json").symlink_to(secret)
    (attempt / "1").mkdir()
    os.mkfifo(attempt / "1/error.json")
    os.mkfifo(attempt / "1/stdout.log")
    (attempt / "2").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/error.json").write_text('{"for": "root alone"}')
    (tmp_path / "elsewhere/stdout.log").write_text("for root alone")
    (attempt / "3").mkdir()
    (attempt / "3/error.json").symlink_to("/dev/zero")
    assert {key: part["text"] for key, part in text(run_dir).items()} == {"0/stdout": "its own\n"}
    assert errors(run_dir) == {}
