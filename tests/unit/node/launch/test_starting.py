"""What root makes for a launch, and what it clears away."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from muster_node.launch import seats, starting, state
from muster_node.tools import files
from muster_node.tools.run import Answer

LAUNCH_ID = "20260101-120000-abcd"


LAUNCH_ID = "20260101-120000-abcd"


def test_old_runs_are_dropped_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path / "state"))
    root = tmp_path / "runs"
    old = [f"20260101-12000{number}-abcd" for number in range(5)]
    for age, name in enumerate([*old, "datasets", "20260101-120000-abcd.kept", "notes"]):
        (root / name / "torchrun").mkdir(parents=True)
        os.utime(root / name, (1000 + age, 1000 + age))
    (root / "20250101-120000-abcd").write_text("a file")
    (root / "20250101-120001-abcd").symlink_to(tmp_path)
    (tmp_path / "state" / old[0]).mkdir(parents=True)  # still running
    starting.drop_old_runs(str(root), 3)
    left = {path.name for path in root.iterdir()}
    assert {name for name in left if name in old} == {old[0], old[3], old[4]}
    assert len(left) == 3 + 5


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts a launch for somebody else")
def test_what_root_writes_for_the_training_user_is_written_before_that_user_may_touch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = pwd.getpwnam("nobody")
    run_dir, began = tmp_path / "runs" / LAUNCH_ID, []
    reader = {"uid": 1234, "gid": 2345}
    at_the_time: list[tuple[int, int]] = []

    def seen(path: str, *args: Any, **how: Any) -> None:
        about = Path(path).parent.stat()
        at_the_time.append((about.st_uid, about.st_mode & 0o022))
        replace(path, *args, **how)

    def systemd(*argv: str, **_how: Any) -> Answer:
        began.append(argv)
        # Another start would take this one, whose unit is not there yet, for a launch that has ended.
        with pytest.raises(BlockingIOError), files.folder(seats.ROOT) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return Answer("", code=0)

    replace = files.replace
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path / "state"))
    monkeypatch.setattr(starting, "command", systemd)
    monkeypatch.setattr(starting, "RESERVE_SECONDS", 0.0)
    monkeypatch.setattr(seats, "ROOT", str(tmp_path / "run/reservations"))
    monkeypatch.setattr(starting, "own_text", lambda: "the program")
    monkeypatch.setattr(files, "replace", seen)
    spec = {
        "launch_id": LAUNCH_ID,
        "user": "nobody",
        "reader": reader,
        "run_dir": str(run_dir),
        "lease": 10.0,
        "time_limit": 60,
        "keep": 10,
        "seats": ["gpu-0"],
        "shared": False,
        "waits": False,
        "properties": {"User": "nobody"},
        "env": {"HF_TOKEN": "secret"},
        "script_name": "train.py",
        "script_body": base64.b64encode(b"import torch").decode(),
    }
    os.umask(0o077)
    began_at = starting.start(spec)
    assert (began_at["started"], began_at["reserved"]["held"]) == (True, {"gpu-0": []})
    assert at_the_time == [(0, 0)] * 4

    folder = tmp_path / "state" / LAUNCH_ID
    kept = {
        run_dir: (nobody.pw_uid, 2345, 0o750),
        run_dir / "train.py": (nobody.pw_uid, nobody.pw_gid, 0o644),
        folder: (0, 0, 0o755),
        folder / "unit": (nobody.pw_uid, 2345, 0o750),
        folder / "seats": (0, nobody.pw_gid, 0o750),
        folder / "seats/gpu-0": (0, 0, 0o644),
        tmp_path / "run/reservations": (0, 0, 0o700),
        tmp_path / "run": (0, 0, 0o755),
        folder / "node.py": (0, 0, 0o644),
        folder / "spec.json": (0, nobody.pw_gid, 0o640),
        folder / "lease": (1234, 2345, 0o644),
    }
    for path, wanted in kept.items():
        about = path.stat()
        assert (about.st_uid, about.st_gid, about.st_mode & 0o7777) == wanted, path
    assert "script_body" not in json.loads((folder / "spec.json").read_text())
    assert "secret" not in str(began)
    assert f"MUSTER_LAUNCH_ID={LAUNCH_ID}" in str(began)
