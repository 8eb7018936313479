"""A hostile training user, at it while launches start, are looked at and end: what root and the one who looks do.

The verbs are real, and so are the users; systemd alone does not exist. MUSTER_TEST_ATTACKS says how many launches they
are; tests/integration/test_launch_attacks.py is the same on nodes.
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
# One that everybody may run: that of a virtual environment may lie in somebody's home.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or ""
LIMIT = 60.0  # seconds for what takes a fraction of one, on a machine with other things to do


pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users"),
    pytest.mark.skipif(not PYTHON, reason="there is no Python that everybody may run"),
]


class Place(NamedTuple):
    folder: Path
    secret: Path
    victim: int
    attacker: subprocess.Popen[str]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Folders for launches, with the attacker at work in all that it may write, and a process that is not its own."""
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


def look_as_the_reader(place: Place, request: dict[str, Any]) -> str:
    """What the one who looks is answered, without root's rights and by files that are theirs."""
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


def standing(path: Path) -> dict[str, tuple[Any, ...]]:
    """What must not change of all that is root's or somebody else's."""
    found = {}
    # What the attacker exchanges meanwhile is passed over; Path.rglob would raise.
    below = (Path(folder, name) for folder, folders, names in os.walk(path) for name in (*folders, *names))
    for each in (path, *below):
        with suppress(OSError):
            seen = each.lstat()
            if seen.st_uid != NOBODY.pw_uid:
                found[str(each)] = (seen.st_ino, seen.st_mode, seen.st_uid, seen.st_gid, seen.st_size)
    return found


def steps(place: Place, launch_id: str) -> list[Callable[[], Any]]:
    """What is done for a launch from its start to its end."""
    asked = {"launch_id": launch_id, "run_dir": str(place.folder / "runs" / launch_id)}
    look = {**asked, "lease": 60.0, "wait": 0.0, "offsets": {}, "limit": 1 << 19}
    return [
        lambda: starting.start(spec_of(place, launch_id)),
        lambda: looking.look(look),
        lambda: look_as_the_reader(place, look),
        lambda: stopping.freeze(asked),
        lambda: looking.logs(look),
        lambda: stopping.stop({**look, "dump": True}),
    ]


def test_a_hostile_training_user_gains_nothing(place: Place) -> None:
    foreign = standing(place.secret.parent)
    said: list[Any] = []
    longest = 0.0
    for number in range(LAUNCHES):
        launch_id = f"20260101-{number:06}-abcd"
        for step in steps(place, launch_id):
            began = time.monotonic()
            said.append(step())
            longest = max(longest, time.monotonic() - began)
        assert said[-6]["started"], said[-6]
        # The rest of the launch's folder is the training user's own.
        own = {Path(path).name for path in standing(place.folder / "runs" / launch_id)}
        assert own <= {launch_id, "script"}
    place.attacker.kill()
    assert place.attacker.stdout
    swaps = place.attacker.stdout.read().split()
    print(f"{LAUNCHES} launches, {swaps[-1:]} exchanges, longest step {longest:.1f} s")
    assert swaps, "the attacker was at it"
    assert CANARY not in json.dumps(said)
    assert standing(place.secret.parent) == foreign
    assert longest < LIMIT
    seen = process.status(place.victim)
    assert seen is not None
    assert seen.state == "S", "nobody stopped or ended a process of somebody else"
    left = [one["pid"] for one in said[-1]["leftovers"]]
    assert place.attacker.pid in left, "and the attacker was named, maybe among others of that account on this machine"
