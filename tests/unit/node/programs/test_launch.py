"""The node's program: its looks at a real machine, this one, and its `run` with a stand-in for torchrun."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.programs import launch as node
from muster_node.tools import files
from muster_node.tools import process as processes
from muster_node.tools.pack import pack, sent
from muster_node.tools.program import BOOTSTRAP
from muster_node.tools.run import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAUNCH_ID = "20260101-120000-abcd"


@contextlib.contextmanager
def process(*argv: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A child with everything that it starts, ended in any case."""
    child = subprocess.Popen(argv, env={**os.environ, **env}, start_new_session=True)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def until(condition: Callable[[], Any], seconds: float = 5.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


# ---------------------------------------------------------------- ports


@contextlib.contextmanager
def listener(family: socket.AddressFamily, address: str) -> Iterator[int]:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.bind((address, 0))
        sock.listen(1)
        yield sock.getsockname()[1]


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::1")]
)
def test_a_listener_on_any_address_holds_the_port(family: socket.AddressFamily, address: str) -> None:
    try:
        with listener(family, address) as port:
            facts = node.port_facts(port)
    except OSError:
        pytest.skip(f"nothing can listen on {address!r} here")
    assert facts["free"] is False
    assert [holder["pid"] for holder in facts["holders"]] == [os.getpid()]
    assert facts["holders"][0]["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert "pytest" in facts["holders"][0]["command"]


def test_a_port_is_free_again_after_its_listener() -> None:
    with listener(socket.AF_INET, "127.0.0.1") as port:
        pass
    assert node.port_facts(port) == {"port": port, "free": True, "holders": []}


def test_a_client_that_talks_from_the_port_holds_it_too() -> None:
    with listener(socket.AF_INET, "127.0.0.1") as port, socket.create_connection(("127.0.0.1", port)) as client:
        facts = node.port_facts(client.getsockname()[1])
    assert facts["free"] is False
    assert [holder["pid"] for holder in facts["holders"]] == [os.getpid()]


def test_a_bound_socket_without_listening_is_not_to_be_seen() -> None:
    with socket.socket() as sock:
        sock.bind(("", 0))
        facts = node.port_facts(sock.getsockname()[1])
    assert (facts["free"], facts["holders"]) == (False, [])


# ---------------------------------------------------------------- addresses, disks, files


def test_interfaces() -> None:
    assert node.interface_of("127.0.0.1") == "lo"
    assert node.interface_of("192.0.2.77") is None
    assert node.interface_of("2001:db8::77") is None


def test_interface_of_this_machines_own_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing: it only asks the routing table
        except OSError:
            pytest.skip("this machine has no route")
        address = sock.getsockname()[0]
    assert node.interface_of(address) in [name for _, name in socket.if_nameindex()]


def test_interface_of_ipv6() -> None:
    loopback = [line for line in Path("/proc/net/if_inet6").read_text().splitlines() if line.endswith(" lo")]
    assert node.interface_of("::1") == ("lo" if loopback else None)


def test_disk_of_the_nearest_folder_there_is(tmp_path: Path) -> None:
    facts = node.disk_facts(str(tmp_path / "not" / "yet"))
    assert facts["path"] == str(tmp_path)
    assert 0 < facts["free"] <= facts["total"]
    assert facts["read_only"] is False


def test_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "train.py").chmod(0o600)
    me, path = pwd.getpwuid(os.getuid()).pw_name, str(tmp_path / "train.py")
    assert node.file_facts(path, me, os.R_OK) == {"path": path, "exists": True, "usable": True}
    assert node.file_facts(f"{path}x", me, os.R_OK) == {"path": f"{path}x", "exists": False, "usable": False}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can ask as somebody else")
def test_files_are_asked_for_as_the_training_user(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("")
    path.chmod(0o600)
    assert node.file_facts(str(path), "nobody", os.R_OK)["usable"] is False
    assert node.file_facts("/bin/sh", "nobody", os.X_OK)["usable"] is True
    assert node.file_facts("/bin/sh", "no-such-user", os.X_OK)["exists"] is True


def test_users() -> None:
    assert node.user_facts("root") == {"uid": 0, "gid": 0, "home": "/root"}
    assert node.user_facts("no-such-user") is None


# ---------------------------------------------------------------- processes


def test_ranks_are_the_children_that_say_so() -> None:
    ranks: dict[int, Any] = {}
    with process("sleep", "60", RANK="5", LOCAL_RANK="1") as one, process("sleep", "60", RANK="x") as other:
        until(lambda: node.watch_ranks(os.getpid(), ranks))
        assert ranks == {one.pid: {"rank": 5, "local_rank": 1, "pid": one.pid, "gone_at": None}}
        assert other.pid in processes.children(os.getpid())
        assert node.watch_ranks(os.getpid(), ranks) is False
        began = time.time()
        os.kill(one.pid, signal.SIGKILL)  # dead, and not reaped: gone all the same
        until(lambda: node.watch_ranks(os.getpid(), ranks))
        assert began <= ranks[one.pid]["gone_at"] <= time.time()
        assert node.watch_ranks(os.getpid(), ranks) is False


# ---------------------------------------------------------------- logs


def log(run_dir: Path, name: str, data: bytes) -> None:
    path = run_dir / "torchrun/job_x/attempt_0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        stream.write(data)


def text(run_dir: Path, limit: int = 1000, **offsets: int) -> dict[str, Any]:
    found: dict[str, Any] = node.new_log_text(str(run_dir), offsets, limit)
    return found


def test_logs_behind_their_offsets(tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_text("one\ntwo\n")
    log(tmp_path, "1/stdout.log", b"step 1\n")
    assert text(tmp_path, agent=4) == {
        "agent": {"begin": 4, "offset": 8, "text": "two\n", "more": False},
        "1/stdout": {"begin": 0, "offset": 7, "text": "step 1\n", "more": False},
    }
    assert text(tmp_path, agent=8, **{"1/stdout": 7}) == {}


def test_no_logs_yet(tmp_path: Path) -> None:
    assert text(tmp_path) == {}


def test_a_flood_ends_with_a_line_and_says_that_there_is_more(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"12345\n" * 10)
    assert text(tmp_path, limit=20)["0/stdout"] == {"begin": 0, "offset": 18, "text": "12345\n" * 3, "more": True}


def test_a_line_longer_than_the_limit_is_cut(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"=" * 50)
    assert text(tmp_path, limit=20)["0/stdout"] == {"begin": 0, "offset": 20, "text": "=" * 20, "more": True}


def test_a_flood_on_stdout_does_not_keep_back_any_stderr(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"12345\n" * 10)
    log(tmp_path, "7/stderr.log", b"the reason\n")
    assert text(tmp_path, limit=20)["7/stderr"]["text"] == "the reason\n"


@pytest.mark.parametrize("limit", [11, 12])
def test_a_log_that_had_to_wait_is_known_to_have_more(tmp_path: Path, limit: int) -> None:
    log(tmp_path, "7/stderr.log", b"the reason\n")
    log(tmp_path, "0/stdout.log", b"12345\n")
    parts = text(tmp_path, limit=limit)
    assert parts["7/stderr"] == {"begin": 0, "offset": 11, "text": "the reason\n", "more": False}
    assert parts["0/stdout"]["more"] is True
    assert text(tmp_path, **{"7/stderr": 11, "0/stdout": parts["0/stdout"]["offset"]})["0/stdout"]["text"]


def test_no_character_is_torn(tmp_path: Path) -> None:
    beach = "\N{BEACH WITH UMBRELLA}".encode()
    log(tmp_path, "0/stdout.log", b"x" + beach[:2])
    first = text(tmp_path)["0/stdout"]
    assert first == {"begin": 0, "offset": 1, "text": "x", "more": False}
    log(tmp_path, "0/stdout.log", beach[2:])
    assert text(tmp_path, **{"0/stdout": 1})["0/stdout"]["text"] == beach.decode()


def test_a_log_that_ends_within_a_character_is_read_to_its_end(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"\xe2")
    assert text(tmp_path)["0/stdout"] == {"begin": 0, "offset": 1, "text": "\ufffd", "more": False}


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    log(tmp_path, "0/stdout.log", b"\xff\x00ok\n")
    assert text(tmp_path)["0/stdout"] == {"begin": 0, "offset": 5, "text": "\ufffd\x00ok\n", "more": False}


def test_error_files(tmp_path: Path) -> None:
    log(tmp_path, "0/error.json", b'{"message": "x"}')
    log(tmp_path, "1/error.json", b'{"message": ')
    assert node.error_files(str(tmp_path)) == {"0": {"message": "x"}}


def test_old_runs_are_dropped_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "STATE_ROOT", str(tmp_path / "state"))
    root = tmp_path / "runs"
    old = [f"20260101-12000{number}-abcd" for number in range(5)]
    for age, name in enumerate([*old, "datasets", "20260101-120000-abcd.kept", "notes"]):
        (root / name / "torchrun").mkdir(parents=True)
        os.utime(root / name, (1000 + age, 1000 + age))
    (root / "20250101-120000-abcd").write_text("a file")
    (root / "20250101-120001-abcd").symlink_to(tmp_path)
    (tmp_path / "state" / old[0]).mkdir(parents=True)  # still running
    node.drop_old_runs(str(root), 3)
    left = {path.name for path in root.iterdir()}
    assert {name for name in left if name in old} == {old[0], old[3], old[4]}
    assert len(left) == 3 + 5


# ---------------------------------------------------------------- start


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
        return Answer("", code=0)

    replace = files.replace
    monkeypatch.setattr(node, "STATE_ROOT", str(tmp_path / "state"))
    monkeypatch.setattr(node, "command", systemd)
    monkeypatch.setattr(node, "own_text", lambda: "the program")
    monkeypatch.setattr(files, "replace", seen)
    spec = {
        "launch_id": LAUNCH_ID,
        "user": "nobody",
        "reader": reader,
        "run_dir": str(run_dir),
        "lease": 10.0,
        "time_limit": 60,
        "keep": 10,
        "properties": {"User": "nobody"},
        "env": {"HF_TOKEN": "secret"},
        "script_name": "train.py",
        "script_body": base64.b64encode(b"import torch").decode(),
    }
    assert node.start(spec)["started"]
    assert at_the_time == [(0, 0)] * 4

    state = tmp_path / "state" / LAUNCH_ID
    kept = {
        run_dir: (nobody.pw_uid, 2345, 0o750),
        run_dir / "train.py": (nobody.pw_uid, nobody.pw_gid, 0o644),
        state: (0, 0, 0o755),
        state / "unit": (nobody.pw_uid, 2345, 0o750),
        state / "node.py": (0, 0, 0o644),
        state / "spec.json": (0, nobody.pw_gid, 0o640),
        state / "lease": (1234, 2345, 0o644),
    }
    for path, wanted in kept.items():
        about = path.stat()
        assert (about.st_uid, about.st_gid, about.st_mode & 0o7777) == wanted, path
    assert "script_body" not in json.loads((state / "spec.json").read_text())
    assert "secret" not in str(began)
    assert f"MUSTER_LAUNCH_ID={LAUNCH_ID}" in str(began)


def test_nothing_of_others_is_read_for_a_launch(tmp_path: Path) -> None:
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
    assert node.error_files(str(run_dir)) == {}


# ---------------------------------------------------------------- run


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `run` with these arguments for torchrun; the process ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        script: str, *, lease: float = 60.0, time_limit: float = 0, argv: list[str] | None = None
    ) -> subprocess.Popen[bytes]:
        (tmp_path / "unit").mkdir()
        (tmp_path / "run").mkdir()
        spec = {
            "argv": argv or [sys.executable, "-c", script],
            "env": {"PATH": os.environ["PATH"]},
            "time_limit": time_limit,
            "run_dir": str(tmp_path / "run"),
        }
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        (tmp_path / "lease").write_text(node.LEASE_FORMAT.format(time.monotonic() + lease))
        (tmp_path / "node.py").write_text(pack(node.__name__))
        command = [sys.executable, "-I", "-S", str(tmp_path / "node.py"), "run", str(tmp_path)]
        child = subprocess.Popen(command, start_new_session=True)
        started.append(child)
        return child

    yield start
    for child in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def result(tmp_path: Path) -> Any:
    found = json.loads((tmp_path / "unit/result.json").read_text())
    assert abs(time.time() - found.pop("ended_at")) < 10
    return found


def test_run_that_ends_well(launch: Any, tmp_path: Path) -> None:
    child = launch("print('agent', flush=True)")
    assert child.wait(5) == 0
    assert result(tmp_path) == {"reason": "exit", "code": 0}
    assert (tmp_path / "run/agent.log").read_text() == "agent\n"


def test_run_that_fails(launch: Any, tmp_path: Path) -> None:
    assert launch("raise SystemExit(3)").wait(5) == 0
    assert result(tmp_path) == {"reason": "exit", "code": 3}


def test_run_that_is_killed(launch: Any, tmp_path: Path) -> None:
    assert launch("import os; os.kill(os.getpid(), 9)").wait(5) == 0
    assert result(tmp_path) == {"reason": "exit", "code": -9}


@pytest.mark.parametrize("argv", [["/no/such/torchrun"], [sys.executable, "-c", "a\0b"]])
def test_run_that_cannot_start(launch: Any, tmp_path: Path, argv: list[str]) -> None:
    assert launch("", argv=argv).wait(5) == 0
    found = result(tmp_path)
    assert found["reason"] == "exec"
    assert found["error"]


def test_run_ends_with_its_lease(launch: Any, tmp_path: Path) -> None:
    assert launch("import time; time.sleep(30)", lease=0.3).wait(5) == 0
    assert result(tmp_path) == {"reason": "lease"}


def test_run_ends_with_its_time(launch: Any, tmp_path: Path) -> None:
    assert launch("import time; time.sleep(30)", time_limit=0.3).wait(5) == 0
    assert result(tmp_path) == {"reason": "limit"}


def test_a_renewed_lease_keeps_it(launch: Any, tmp_path: Path) -> None:
    child = launch("import time; time.sleep(1)", lease=0.6)
    node.renew_lease(str(tmp_path), 60.0)
    assert child.wait(5) == 0


def test_run_that_is_told_to_stop(launch: Any, tmp_path: Path) -> None:
    child = launch("import time; print('up', flush=True); time.sleep(30)")
    until(lambda: (tmp_path / "run/agent.log").exists() and (tmp_path / "run/agent.log").read_text())
    os.killpg(child.pid, signal.SIGTERM)  # as systemd does: to everything in the unit
    assert child.wait(5) == 0
    assert result(tmp_path) == {"reason": "stopped", "code": -signal.SIGTERM}


def test_run_keeps_a_table_of_its_ranks(launch: Any, tmp_path: Path) -> None:
    script = (
        "import os, subprocess, time\n"
        "env = dict(os.environ, RANK='3', LOCAL_RANK='1')\n"
        "rank = subprocess.Popen(['sleep', '0.4'], env=env)\n"
        f"os.mkdir({str(tmp_path / 'run/torchrun')!r}); os.mkdir({str(tmp_path / 'run/torchrun/job')!r}, 0o700)\n"
        "rank.wait(); time.sleep(0.4)\n"
    )
    child = launch(script)
    table = until(lambda: node.read_json(str(tmp_path / "unit/ranks.json")))
    assert [(rank["rank"], rank["local_rank"], rank["gone_at"]) for rank in table["ranks"]] == [(3, 1, None)]
    assert child.wait(5) == 0
    assert node.read_json(str(tmp_path / "unit/ranks.json"))["ranks"][0]["gone_at"] is not None
    assert (tmp_path / "run/torchrun/job").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("content", "held"), [("", False), ("nonsense\n", False), ("0.0\n", False), ("inf\n", True), ("1e18\n", True)]
)
def test_a_lease_is_held_or_not(tmp_path: Path, content: str, *, held: bool) -> None:
    (tmp_path / "lease").write_text(content)
    assert node.lease_is_held(str(tmp_path)) is held


def test_without_a_lease_nothing_is_held(tmp_path: Path) -> None:
    assert node.lease_is_held(str(tmp_path)) is False
    node.renew_lease(str(tmp_path), 10.0)  # it makes none: the launch was cleared away
    assert not (tmp_path / "lease").exists()


def test_a_lease_for_ever_and_back(tmp_path: Path) -> None:
    (tmp_path / "lease").write_text(node.LEASE_FORMAT.format(float("inf")))
    assert node.lease_is_held(str(tmp_path))
    node.renew_lease(str(tmp_path), -1.0)
    assert not node.lease_is_held(str(tmp_path))


def test_prepare_and_look_speak_json(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    request = {"user": me, "executable": sys.executable, "run_root": str(tmp_path), "address": "127.0.0.1", "port": 0}
    command = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, "prepare"]
    done = subprocess.run(command, input=sent(node.__name__, request), capture_output=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["executable"]["usable"] is True
    assert (facts["interface_of_address"], facts["port"], facts["script"]) == ("lo", None, None)
    assert facts["python"][:2] == list(sys.version_info[:2])
