"""Reading of logs given as a file, a folder or a pattern."""

from __future__ import annotations

import gzip
import os
import socket
from pathlib import Path

import pytest

from muster.launch.plan import PlanError
from muster_controller.diagnosis import foreign_logs
from muster_controller.diagnosis.foreign_logs import LONGEST, read_logs


def texts_of(where: str) -> dict[str, str]:
    """Return the texts of the logs, and check that no log was skipped."""
    logs = read_logs(where)
    assert logs.left_out == ()
    return logs.texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1/stderr.log").write_text("one")
    (tmp_path / "slurm-7.out").write_bytes(b"two \xff")
    (tmp_path / "model.pt").write_text("three")
    return tmp_path


def test_file_folder_and_pattern_are_read(folder: Path) -> None:
    file = folder / "model.pt"
    assert texts_of(str(file)) == {str(file): "three"}
    log, out = folder / "node1/stderr.log", folder / "slurm-7.out"
    assert texts_of(str(folder)) == {str(log): "one", str(out): "two \N{REPLACEMENT CHARACTER}"}
    assert list(texts_of(f"{folder}/slurm-*.out")) == [str(out)]
    assert list(texts_of(f"{folder}/*/std???.log")) == [str(log)]


@pytest.mark.parametrize("name", ["slurm-7.out", "slurm-7.out.gz"])
def test_beginning_and_end_of_a_long_log_are_read(folder: Path, name: str) -> None:
    file = folder / name
    content = b"begin\n" + b"a line\n" * 1_000_000 + b"end\n"
    file.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    logs = read_logs(str(file))
    [text] = logs.texts.values()
    assert text.startswith("begin\n")
    assert text.endswith("\na line\nend\n")
    assert LONGEST - 20 < len(text) <= LONGEST + 1
    assert logs.left_out == (f"the middle of {file} (only the first 1 MB and the last 3 MB of 7 MB were read)",)


def test_compressed_rotated_and_unnamed_logs_are_read_in_the_order_of_their_age(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "a.log.10", "a.log-20260101", "stderr", "job.o7", "lines.json"):
        (tmp_path / name).write_text(name)
    (tmp_path / "a.log.2.gz").write_bytes(gzip.compress(b"a.log.2.gz"))
    (tmp_path / "binary").write_bytes(b"\x7fELF\0")
    (tmp_path / "weights.pt").write_text("no log")
    logs = read_logs(str(tmp_path))
    assert logs.texts == {f"{tmp_path}/{name}": name for name in (Path(path).name for path in logs.texts)}
    order = [Path(path).name for path in logs.texts]
    assert [name for name in order if name.startswith("a.")] == [
        "a.log.10",
        "a.log.2.gz",
        "a.log.1",
        "a.log-20260101",
        "a.log",
    ]
    assert {*order} >= {"stderr", "job.o7", "lines.json"}
    assert logs.left_out == (f"{tmp_path}/binary is not a text file",)


def test_truncated_and_corrupt_compressed_logs(tmp_path: Path) -> None:
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(b"a line\n" * 1000, 0)[:5000])
    (tmp_path / "not.log.gz").write_text("plain text")
    logs = read_logs(str(tmp_path))
    [text] = logs.texts.values()
    assert text.startswith("a line\n")
    assert logs.left_out == (f"{tmp_path}/not.log.gz cannot be read (Not a gzipped file (b'pl'))",)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_byte_order_mark_gives_the_encoding(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "a.log"
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    file.write_bytes(mark + "Zeile: \u00fc\n".encode(encoding))
    assert texts_of(str(file)) == {str(file): "Zeile: \u00fc\n"}
    file.write_bytes(mark + ("begin\n" + "a line\n" * 500_000 + "end\n").encode(encoding))
    [text] = read_logs(str(file)).texts.values()
    assert text.startswith("begin\n")
    assert text.endswith("a line\nend\n")


def test_refusal_names_the_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("model.pt", "data.bin"):
        (tmp_path / name).write_text("x")
    with pytest.raises(PlanError) as problem:
        read_logs(str(tmp_path))
    assert problem.value.problems[1:] == ["Other files there: data.bin, model.pt."]


def test_missing_log_is_reported(folder: Path) -> None:
    with pytest.raises(PlanError) as problem:
        texts_of(f"{folder}/none-*.log")
    assert "No log found at" in problem.value.problems[0]


@pytest.fixture
def secret(folder: Path) -> Path:
    """Create a file outside of the log folder with links to it, and special files in the folder."""
    away = folder / "away"
    away.mkdir()
    (away / "secret.log").write_text("secret")
    logs = folder / "logs"
    (logs / "deep").mkdir(parents=True)
    (logs / "own.log").write_text("own")
    (logs / "deep/link.log").symlink_to(away / "secret.log")
    (logs / "folder").symlink_to(away)
    os.mkfifo(logs / "pipe.log")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(logs / "socket.err"))
    return logs


@pytest.mark.parametrize("where", ["{logs}", "{logs}/**/*"])
def test_only_regular_files_are_read_below_a_folder(secret: Path, where: str) -> None:
    logs = read_logs(where.format(logs=secret))
    assert logs.texts == {f"{secret}/own.log": "own"}
    assert sorted(logs.left_out) == [
        f"{secret}/deep/link.log is a link",
        f"{secret}/folder is a link",
        f"{secret}/pipe.log is not a regular file",
        f"{secret}/socket.err is not a regular file",
    ]


def test_pattern_does_not_follow_links(secret: Path) -> None:
    with pytest.raises(PlanError) as problem:
        read_logs(f"{secret}/fold*/secret.log")
    left_out = f"Skipped: {secret}/folder/secret.log contains a part that is a link or not a folder."
    assert problem.value.problems[1:] == [left_out]


def test_given_path_can_be_a_symlink(secret: Path) -> None:
    (secret.parent / "link").symlink_to(secret / "own.log")
    assert texts_of(f"{secret}/deep/link.log") == {f"{secret}/deep/link.log": "secret"}
    assert texts_of(f"{secret}/folder") == {f"{secret}/folder/secret.log": "secret"}
    assert texts_of(f"{secret}/folder/*.log") == {f"{secret}/folder/secret.log": "secret"}


def test_given_fifo_does_not_block_the_diagnosis(secret: Path) -> None:
    with pytest.raises(PlanError) as problem:
        read_logs(f"{secret}/pipe.log")
    assert problem.value.problems[1:] == [f"Skipped: {secret}/pipe.log is not a regular file."]


def test_control_characters_in_a_file_name_are_not_printed(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("a")
    (tmp_path / "\x1b[2J.log").symlink_to("a.log")
    [sentence] = read_logs(str(tmp_path)).left_out
    assert "\x1b" not in sentence


def test_folder_with_too_many_names_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_logs, "MOST_SEEN", 3)
    with pytest.raises(PlanError) as problem:
        read_logs(str(folder))
    assert problem.value.problems == [f"{folder} has more than 3 files and folders. Specify a folder below it."]


def test_too_many_logs_are_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_logs, "MOST_FILES", 1)
    with pytest.raises(PlanError) as problem:
        read_logs(str(folder))
    assert problem.value.problems[0].startswith(f"{folder} has 2 files")
