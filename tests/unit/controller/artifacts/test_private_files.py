"""Files of a run on the controller: file modes, symlinks and the stored inspection."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from muster_controller.artifacts.private_files import append
from muster_controller.artifacts.runs import open_run, write_json
from muster_controller.report.page import rewrite_page, write_page

if TYPE_CHECKING:
    from pathlib import Path


def test_latest_links_to_newest_run(tmp_path: Path) -> None:
    for name in ("one", "two"):
        open_run(tmp_path / name)
        write_json(tmp_path / name / "verdict.json", {"name": name})
    assert json.loads((tmp_path / "latest/verdict.json").read_text()) == {"name": "two"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "one", "two"]


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode)
        for path in folder.rglob("*")
        if not path.is_symlink()
    }


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_files_of_a_run_are_private_regardless_of_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = tmp_path / "artifacts/rack/20260101-120000-abcd"
        open_run(folder)
        write_json(folder / "health/node1.json", {})
        write_page(folder, {"id": folder.name, "cluster": "rack"})
        for _ in range(2):
            append(folder / "logs/node1/rank0.stdout.log", b"line\n")
    finally:
        os.umask(before)
    found = modes(tmp_path)
    assert len(found) == 11
    assert found == {name: 0o600 if (tmp_path / name).is_file() else 0o700 for name in found}
    assert (folder / "logs/node1/rank0.stdout.log").read_text() == "line\nline\n"


def test_pipe_in_place_of_a_log_is_rejected_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="No such device or address"):
        append(tmp_path / "log", b"line")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="is not a regular file"):
            append(tmp_path / "log", b"line")
    finally:
        os.close(reader)


def test_run_stores_the_findings_of_its_own_inspection(tmp_path: Path) -> None:
    one, other = (tmp_path / f"rack/20260101-12000{number}-abcd" for number in range(2))
    found = {"id": "user.uid.differs", "status": "warn", "node": "node1", "summary": "the uid is 1002"}
    inspect = {"status": "degraded", "findings": [found], "run": one.name, "nodes": {"node1": {"a": "long look"}}}
    write_json(tmp_path / "rack/inspect.json", inspect)
    for folder in (one, other):
        open_run(folder)
        write_page(folder, {"id": folder.name, "cluster": "rack"})
    write_json(tmp_path / "rack/inspect.json", {**inspect, "run": other.name, "findings": []})
    assert "the uid is 1002" in rewrite_page(one).read_text()
    assert "the uid is 1002" not in rewrite_page(other).read_text()
    assert "nodes" not in json.loads((one / "inspect.json").read_text())


def test_folders_of_earlier_runs_become_private_and_are_not_removed(tmp_path: Path) -> None:
    earlier = tmp_path / "rack/20260101-120000-abcd"
    elsewhere = tmp_path / "elsewhere"
    for folder in (earlier, elsewhere):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    (earlier / "report.html").write_text("kept")
    (tmp_path / "rack/20260102-120000-abcd").symlink_to(elsewhere)
    open_run(tmp_path / "rack/20260103-120000-abcd")
    assert modes(tmp_path)["rack"] == modes(tmp_path)["rack/20260101-120000-abcd"] == 0o700
    assert modes(tmp_path)["elsewhere"] == 0o755
    assert (earlier / "report.html").read_text() == "kept"
    assert (tmp_path / "rack/latest").readlink().name == "20260103-120000-abcd"
