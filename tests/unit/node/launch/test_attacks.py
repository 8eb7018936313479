"""Attacks by a hostile training user while root and the supervisor start, check and stop launches.

The requests and users are real; systemd is a stub. MUSTER_TEST_ATTACKS sets the number of launches.
tests/integration/test_launch_attacks.py runs the same test on nodes.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from launch_shapes import a_start
from muster_node.launch import looking, seats, starting, state, stopping
from muster_node.programs import launch as program
from muster_node.tools import process
from muster_node.tools.pack import pack
from muster_node.tools.run import CommandResult
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ATTACKER = ROOT / "tests/integration/payloads/hostile_user.py"
CANARY = "canary-that-nobody-may-see"
NOBODY = pwd.getpwnam("nobody")
READER = pwd.getpwnam("daemon")
LAUNCHES = int(os.environ.get("MUSTER_TEST_ATTACKS", "3"))
# A Python that all users can run. The Python of a virtual environment may be in a private home.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or ""
LIMIT = 60.0  # seconds for a step that takes less than one, to allow for a busy machine


pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="only root can run processes of several users"),
    pytest.mark.skipif(not PYTHON, reason="no Python that all users can run"),
]


class Place(NamedTuple):
    folder: Path
    secret: Path
    victim: int
    attacker: subprocess.Popen[str]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Create launch folders, run the attacker in all folders that it can write to, and start a victim process."""
    folder = Path(tempfile.mkdtemp(prefix="muster-test-"))
    folder.chmod(0o755)
    secrets = folder / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "secret").write_text(CANARY)
    private = folder / "private"
    private.write_text(CANARY)
    private.chmod(0o600)
    os.chown(private, READER.pw_uid, READER.pw_gid)
    monkeypatch.setattr(state, "STATE_ROOT", str(folder / "state"))
    monkeypatch.setattr(stopping, "PATIENCE", 0.0)
    monkeypatch.setattr(starting, "RESERVE_SECONDS", 0.0)
    monkeypatch.setattr(seats, "ROOT", str(folder / "reservations"))
    monkeypatch.setattr(starting, "own_text", lambda: "the program")
    monkeypatch.setattr(state, "command", lambda *_argv, **_how: CommandResult("ActiveState=inactive\n", code=0))
    (folder / "hostile_user.py").write_text(ATTACKER.read_text())
    (folder / "program.py").write_text(pack(program.__name__).replace("/run/muster/launches", state.STATE_ROOT))
    patterns = [str(folder / each) for each in ("state/*/unit", "runs/*/logs", "work/*")]
    with ended(["sleep", "3600"]) as victim:
        argv = [PYTHON, "-I", "-S", str(folder / "hostile_user.py"), "1", str(private), str(secrets), str(victim.pid)]
        with ended([*argv, *patterns], user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[]) as attacker:
            assert attacker.stdout
            assert attacker.stdout.readline() == "at it\n"
            yield Place(folder, secrets / "secret", victim.pid, attacker)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ended(argv: list[str], **how: Any) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **how) as child:
        try:
            yield child
        finally:
            child.kill()


def spec_of(place: Place, launch_id: str) -> dict[str, Any]:
    reader = {"uid": READER.pw_uid, "gid": READER.pw_gid}
    bounds = {"lease": 60.0, "keep": 2, "keep_bytes": 1_000_000}
    return a_start(place.folder, launch_id, reader=reader, env={"HF_TOKEN": CANARY}, **bounds)


def check_as_supervisor(place: Place, request: dict[str, Any]) -> str:
    """Return the output of a check by the unprivileged supervising user."""
    done = subprocess.run(
        [PYTHON, "-I", "-S", str(place.folder / "program.py"), "look"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
        user=READER.pw_uid,
        group=READER.pw_gid,
        extra_groups=[],
    )
    return done.stdout


def protected_files(path: Path) -> dict[str, tuple[Any, ...]]:
    """Return the attributes of files that belong to users other than the attacker."""
    found = {}
    # Files that the attacker replaces meanwhile are skipped. Path.rglob would raise.
    below = (Path(folder, name) for folder, folders, names in os.walk(path) for name in (*folders, *names))
    for each in (path, *below):
        with suppress(OSError):
            seen = each.lstat()
            if seen.st_uid != NOBODY.pw_uid:
                found[str(each)] = (seen.st_ino, seen.st_mode, seen.st_uid, seen.st_gid, seen.st_size)
    return found


def steps(place: Place, launch_id: str) -> list[Callable[[], Any]]:
    """Return the steps of a launch from start to end."""
    asked = {"launch_id": launch_id, "run_dir": str(place.folder / "runs" / launch_id)}
    look = {**asked, "lease": 60.0, "wait": 0.0, "offsets": {}, "limit": 1 << 19}
    return [
        lambda: starting.start(spec_of(place, launch_id)),
        lambda: looking.look(look),
        lambda: check_as_supervisor(place, look),
        lambda: stopping.freeze(asked),
        lambda: looking.logs(look),
        lambda: stopping.stop({**look, "dump": True}),
    ]


def test_hostile_training_user_gains_nothing(place: Place) -> None:
    foreign = protected_files(place.secret.parent)
    said: list[Any] = []
    longest = 0.0
    for number in range(LAUNCHES):
        launch_id = f"20260101-{number:06}-abcd"
        for step in steps(place, launch_id):
            began = time.monotonic()
            said.append(step())
            longest = max(longest, time.monotonic() - began)
        assert said[-6]["started"], said[-6]
        # Other files in the launch's folder belong to the training user.
        own = {Path(path).name for path in protected_files(place.folder / "runs" / launch_id)}
        assert own <= {launch_id, "script"}
    place.attacker.kill()
    assert place.attacker.stdout
    swaps = place.attacker.stdout.read().split()
    print(f"{LAUNCHES} launches, {swaps[-1:]} exchanges, longest step {longest:.1f} s")
    assert swaps, "the attacker was active"
    assert CANARY not in json.dumps(said)
    assert protected_files(place.secret.parent) == foreign
    assert longest < LIMIT
    seen = process.status(place.victim)
    assert seen is not None
    assert seen.state == "S", "the victim process was neither stopped nor killed"
    left = [one["pid"] for one in said[-1]["leftovers"]]
    assert place.attacker.pid in left, "the attacker is reported, possibly with other processes of the same account"
