"""Files and folders that root creates or removes for a launch."""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import pwd
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock

import pytest

from launch_shapes import LAUNCH_ID, a_start
from muster_node.launch import seats, starting, state
from muster_node.tools import files
from muster_node.tools.run import CommandResult

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can start a launch for another user")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a start request, and replace systemd with a stub that accepts every command."""
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path / "run/state"))
    monkeypatch.setattr(state, "is_over", lambda _launch_id: True)
    monkeypatch.setattr(state, "command", lambda *_argv, **_how: CommandResult("", code=0))
    monkeypatch.setattr(starting, "RESERVE_SECONDS", 0.0)
    monkeypatch.setattr(seats, "ROOT", str(tmp_path / "run/reservations"))
    monkeypatch.setattr(starting, "own_text", lambda: "the program")
    return a_start(
        tmp_path,
        time_limit=60,
        seats=["gpu-0"],
        properties={"User": "nobody"},
        env={"HF_TOKEN": "nutmeg-314159"},
        script_body=base64.b64encode(b"import torch").decode(),
    )


@as_root
def test_files_are_written_before_the_user_gets_access(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = pwd.getpwnam("nobody")
    run_dir, work_dir = tmp_path / "runs" / LAUNCH_ID, tmp_path / "work" / LAUNCH_ID
    began: list[tuple[str, ...]] = []
    at_the_time: list[tuple[int, int]] = []

    def seen(path: str, *args: Any, **how: Any) -> None:
        about = Path(path).parent.stat()
        at_the_time.append((about.st_uid, about.st_mode & 0o022))
        replace(path, *args, **how)

    def systemd(*argv: str, **_how: Any) -> CommandResult:
        began.append(argv)
        if argv[0] != "systemd-run":
            return CommandResult("", code=0)
        # A concurrent start would consider this launch ended, because its unit does not exist yet.
        with pytest.raises(BlockingIOError), files.folder(str(tmp_path / "run" / seats.STARTS)) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return CommandResult("", code=0)

    replace = files.replace
    monkeypatch.setattr(state, "command", systemd)
    monkeypatch.setattr(files, "replace", seen)
    os.umask(0o077)
    done = starting.start(spec)
    assert done["reserved"]["held"] == {"gpu-0": []}
    nothing = {"pruned": [], "bytes": 0, "project": "", "record": None}
    assert done == {"started": True, "error": "", "time": ANY, "reserved": ANY, **nothing}
    assert at_the_time == [(0, 0)] * 4

    folder = tmp_path / "run/state" / LAUNCH_ID
    uid, gid = nobody.pw_uid, nobody.pw_gid
    kept = {
        run_dir: (0, 0, 0o755),
        run_dir / "script": (0, 0, 0o755),
        run_dir / "script/train.py": (uid, gid, 0o600),
        run_dir / "logs": (uid, 2345, 0o750),
        work_dir: (uid, gid, 0o700),
        folder: (0, 0, 0o755),
        folder / "unit": (uid, 2345, 0o750),
        folder / "seats": (0, gid, 0o750),
        folder / "seats/gpu-0": (0, 0, 0o644),
        tmp_path / "run/reservations": (0, 0, 0o700),
        tmp_path / "run": (0, 0, 0o755),
        folder / "node.py": (0, 0, 0o644),
        folder / "spec.json": (uid, gid, 0o400),
        folder / "lease": (1234, 2345, 0o644),
    }
    for path, wanted in kept.items():
        about = path.stat()
        assert (about.st_uid, about.st_gid, about.st_mode & 0o7777) == wanted, path
    assert "script_body" not in json.loads((folder / "spec.json").read_text())
    assert "nutmeg-314159" not in str(began)
    assert f"MUSTER_LAUNCH_ID={LAUNCH_ID}" in str(began)


@as_root
@pytest.mark.parametrize("root", ["runs", "work"])
def test_no_files_are_written_to_unsafe_folders(spec: dict[str, Any], root: str, tmp_path: Path) -> None:
    (tmp_path / root).mkdir()
    (tmp_path / root).chmod(0o777)
    done = starting.start(spec)
    assert not done["started"]
    assert done["error"] == f"{tmp_path / root} is not safe to use: {tmp_path / root} is writable by all users"
    assert list((tmp_path / root).iterdir()) == []


def test_attempt_is_rejected_until_earlier_attempts_end(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "is_over", lambda launch_id: launch_id == LAUNCH_ID)
    earlier = "20260101-115900-abcd"
    done = starting.start({**spec, "earlier": [earlier]})
    assert (done["started"], done["error"]) == (False, f"not ended yet: muster-launch-{earlier}.service")
    monkeypatch.setattr(state, "is_over", lambda _launch_id: False)
    assert starting.start(spec)["error"] == f"not ended yet: muster-launch-{LAUNCH_ID}.service"
    assert not Path(spec["run_dir"]).parent.exists()


@as_root
def test_working_directory_of_an_earlier_attempt_is_reused(spec: dict[str, Any]) -> None:
    work = Path(spec["work_dir"])
    work.mkdir(parents=True)
    os.chown(work, pwd.getpwnam("nobody").pw_uid, 0)
    (work / "checkpoint").touch()
    assert starting.start(spec)["started"]
    assert (work / "checkpoint").exists()


@as_root
def test_working_directory_of_another_user_is_rejected(spec: dict[str, Any]) -> None:
    Path(spec["work_dir"]).mkdir(parents=True)
    done = starting.start(spec)
    assert not done["started"]
    assert "belongs to root" in done["error"]


def test_memory_limit_reserves_memory_for_the_system() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert total // 2 <= starting.memory_limit() < total


def test_full_disk_is_reported(spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), spec["run_dir"])
    monkeypatch.setattr(starting, "make_folders", Mock(side_effect=full))
    done = starting.start(spec)
    assert (done["started"], done["error"]) == (False, f"{tmp_path}/runs/{LAUNCH_ID}: No space left on device")
