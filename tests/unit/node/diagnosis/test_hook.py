"""The sitecustomize hook of a launch in real Python processes: the hook answers requests and changes nothing else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.diagnosis import hook, observed
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = sys.executable
LAUNCH = "20261123-101112-abcd"
RANK = {"RANK": "3", "LOCAL_RANK": "1", "MUSTER_LAUNCH_ID": LAUNCH}
# Prints everything that a script could see of the hook. Modules that no path can hide may be loaded, as they cannot be
# the user's. If _socket is a file, Python has also read the folder of its library that contains it.
SHOW = """
import sys
loaded = sorted(name for name in sys.modules if name not in sys.builtin_module_names)
import os, threading
searched = [each for each in sys.path_importer_cache if not each.startswith(os.path.dirname(os.__file__))]
print(sys.path, searched, [each for each in loaded if each not in ("__future__", "_socket")])
print(sorted(os.environ.items()), threading.active_count(), threading.main_thread() is threading.current_thread())
print(sys.modules.get("sitecustomize"), sys.excepthook, sys.meta_path, sys.path_hooks)
print(os.open("/dev/null", os.O_RDONLY))
import signal
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), [signal.getsignal(each) for each in (2, 6, 10, 12, 15)])
sys.stdout.flush()
child = os.fork()
if not child:
    print("forked", len(os.listdir("/proc/self/task")), os.open("/dev/null", os.O_RDONLY))
    sys.exit(0)
os.waitpid(child, 0)
try:
    import sitecustomize
except Exception as missing:
    print(repr(missing))
raise RuntimeError("as it is printed")
"""
THEIRS = "import sys, os; print('theirs', __name__, __file__, sys.path, os.environ.get('PYTHONPATH'))"
ADDRESS = re.compile(rb"0x[0-9a-f]+")
# A stub for the parts of torch that the hook uses. NAMES: the backend of each device of the default group. HOOKED:
# whether torch attached its recording hook to the group (2.15). The right recorder has 7 collectives.
STUB = """
import ctypes, sys, types
names, hooked = NAMES, HOOKED
def dump(enqueued):
    return b'{"entries": [], "pg_status": {"0": {"last_enqueued_collective": "%d"}}}' % enqueued
def fr(includeCollectives, onlyActive, **backend):
    assert hooked or not backend, "no such argument before 2.15"
    if backend and onlyActive:
        return dump(6)  # a hooked group's status counts from 0
    return dump(7 if backend.get("backend", "gloo") == names["cuda"] else 3)
class Group:
    _device_types = tuple(names)
    def _get_backend(self, device):
        return types.SimpleNamespace(name=lambda: names[device])
c10d, binding = types.ModuleType("c10d"), types.ModuleType("binding")
c10d.GroupMember = types.SimpleNamespace(WORLD=Group())
c10d._world = types.SimpleNamespace(**{"pg_flight_recorder_hooks": {c10d.GroupMember.WORLD: 0}} if hooked else {})
binding._dump_fr_trace_json = fr
def of_nccl(includeCollectives, onlyActive):
    assert includeCollectives == permitted, "a query of events would end the capture of a CUDA graph"
    return dump(7 if names["cuda"] == "nccl" else 3)
binding._dump_nccl_trace_json, permitted = of_nccl, False
sys.modules["torch.distributed.distributed_c10d"] = c10d
sys.modules["torch._C._distributed_c10d"] = binding
"""


def torch(backends: str, *, hooked: bool = False) -> str:
    """Return the stub. backends: as torch prints a group's configuration."""
    names = dict(one.split(":") for one in backends.split(","))
    return STUB.replace("NAMES", repr(names)).replace("HOOKED", repr(hooked))


TORCH = torch("cpu:gloo,cuda:gloo")
# A stub for the driver's library, whose function changes the mode of this thread.
DRIVER = """
import _thread, ctypes
main, permitted = _thread.get_ident(), True
class Driver:
    def __init__(self, name):
        assert name == "libcuda.so.1"
    def cuThreadExchangeStreamCaptureMode(self, mode):
        assert mode._obj.value == 1 and _thread.get_ident() != main
        return 0
ctypes.CDLL = Driver
"""
WAITS = "import sys\ndef waits_here():\n    print('waits', flush=True)\n    sys.stdin.read()\nwaits_here()\n"


@pytest.fixture
def state() -> Iterator[Path]:
    """Create the state folder of a launch with the files that folders.place_hook writes. Its path is short, because a
    socket's path has at most 107 characters.
    """
    with tempfile.TemporaryDirectory(prefix="hook-", dir="/tmp") as short:
        folder = Path(short, LAUNCH)
        (folder / "hook").mkdir(parents=True)
        (folder / "observe").mkdir(mode=0o700)
        shutil.copy(hook.__file__, folder / "hook/sitecustomize.py")
        yield folder


def environment(state: Path | None, path: str = "", **more: str) -> dict[str, str]:
    found = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **RANK, **more}
    both = [*([f"{state}/hook"] if state else []), *([path] if path else [])]
    return {**found, "PYTHONPATH": ":".join(both)} if both else found


def said(script: Path, env: dict[str, str], *options: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run([PYTHON, *options, script], env=env, capture_output=True, check=False, timeout=60)
    return done.returncode, ADDRESS.sub(b"", done.stdout), done.stderr


@contextmanager
def rank(state: Path, text: str = WAITS, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a rank that waits at a known line of its script."""
    argv = [PYTHON, "-c", text]
    env = environment(state, **more)
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"waits\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("options", [(), ("-Werror",), ("-Wdefault",), ("-P",), ("-O",)], ids=" ".join)
@pytest.mark.parametrize(
    "theirs", ["", THEIRS, "raise ValueError('theirs is broken')", "import a_module_that_is_not_there"]
)
def test_hook_does_not_change_script_output(state: Path, tmp_path: Path, theirs: str, options: tuple[str, ...]) -> None:
    if "-P" in options and sys.version_info < (3, 11):
        pytest.skip("this Python knows no -P")
    script = tmp_path / "script.py"
    script.write_text(SHOW)
    path = ""
    if theirs:
        (tmp_path / "own").mkdir()
        (tmp_path / "own/sitecustomize.py").write_text(theirs)
        path = str(tmp_path / "own")
    without, with_it = (said(script, environment(each, path), *options) for each in (None, state))
    assert b"RuntimeError: as it is printed" in without[2]
    assert with_it == without


@pytest.mark.parametrize("option", ["-E", "-I", "-S"])
def test_isolated_python_does_not_report_its_stack(state: Path, option: str) -> None:
    listing = f"import os; print(os.listdir({str(state / 'observe')!r}))"
    done = subprocess.run(
        [PYTHON, option, "-c", listing], env=environment(state), capture_output=True, check=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_sitecustomize_of_the_environment_is_imported(state: Path, tmp_path: Path) -> None:
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    purelib = f"lib/python{sysconfig.get_python_version()}/site-packages"
    (tmp_path / "venv" / purelib / "sitecustomize.py").write_text(THEIRS)
    shown = [
        subprocess.run([python, "-c", SHOW], env=environment(each), capture_output=True, check=False)
        for each in (None, state)
    ]
    # Ubuntu's Python has a sitecustomize in its standard library, which takes precedence over the environment's.
    hidden = Path(sysconfig.get_path("stdlib"), "sitecustomize.py").exists()
    assert shown[0].stdout.startswith(b"theirs sitecustomize") is not hidden
    assert ADDRESS.sub(b"", shown[1].stdout) == ADDRESS.sub(b"", shown[0].stdout)
    assert shown[1].stderr == shown[0].stderr


def test_rank_reports_its_stack(state: Path) -> None:
    with rank(state) as process:
        own = (state / "observe" / str(process.pid)).stat()
        assert (stat.S_IMODE(own.st_mode), own.st_uid) == (0o600, os.getuid())
        there = ['  File "<string>", line 4 in waits_here', '  File "<string>", line 5 in <module>']
        folder = str(state / "observe")
        found = until(lambda: (seen := observed.observed(process.pid, folder))["stack"] == there and seen, PATIENCE)
    assert found["stack_why"] == ""
    assert (found["flight"], found["flight_why"]) == (None, "the rank has no torch.distributed process group")


def answered(state: Path, pid: int, *, finished: bool = True) -> dict[str, Any]:
    """Ask a rank until it answers: on a busy machine, an answer can be late."""

    def ask() -> dict[str, Any]:
        found = observed.all_observed([pid], str(state / "observe"), finished=finished)[pid]
        return found if found["stack"] else {}

    found: dict[str, Any] = until(ask, PATIENCE)
    return found


@pytest.mark.parametrize(
    ("backends", "hooked"),
    [
        ("cpu:gloo,cuda:gloo", False),
        ("cuda:nccl", False),  # torch up to 2.14, and nccl-legacy of 2.15
        ("cpu:gloo,cuda:nccl", False),
        ("cuda:nccl2", True),
        ("cpu:gloo,cuda:nccl2", True),
    ],
)
def test_flight_recorder_of_the_groups_backend_is_read(state: Path, backends: str, hooked: bool) -> None:
    with rank(state, torch(backends, hooked=hooked) + WAITS) as process:
        found = [answered(state, process.pid, finished=finished) for finished in (True, False)]
    assert [one["flight"] for one in found] == [{"group": "default_pg", "enqueued": 7, "last": []}] * 2


def test_nccls_entries_are_read_without_ending_a_graph_capture(state: Path) -> None:
    with rank(state, torch("cuda:nccl") + DRIVER + WAITS) as process:
        found = answered(state, process.pid)
    assert found["flight"] == {"group": "default_pg", "enqueued": 7, "last": []}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (torch("cuda:nccl2"), "the rank's torch has no readable flight recorder for nccl2"),  # 2.14, or switched off
        (TORCH + "del binding._dump_fr_trace_json\n", "the rank's torch has no readable flight recorder for gloo"),
        (TORCH + "del Group._get_backend\n", "the flight recorder could not be read (AttributeError)"),
    ],
)
def test_stack_is_reported_without_a_flight_recorder(state: Path, script: str, why: str) -> None:
    with rank(state, script + WAITS) as process:
        found = answered(state, process.pid)
    assert (found["flight"], found["flight_why"]) == (None, why)


def test_failed_rank_writes_its_flight_recorder(state: Path) -> None:
    with rank(state, TORCH + WAITS + "raise SystemExit(3)") as process:
        process.communicate()
        assert process.returncode == 3
        found = observed.observed(process.pid, str(state / "observe"))
        left = state / "observe" / f"{process.pid}.last"
    assert found["flight"] == {"group": "default_pg", "enqueued": 7, "last": []}
    assert found["stack_why"] == "the rank has exited"
    assert [path.name for path in (state / "observe").iterdir()] == [left.name]
    assert stat.S_IMODE(left.stat().st_mode) == 0o600


NOT_RANKS = {
    "the launcher": {"RANK": None},
    "no launch": {"MUSTER_LAUNCH_ID": None},
    "another launch": {"MUSTER_LAUNCH_ID": "20261123-101112-0000"},
}


@pytest.mark.parametrize("without", NOT_RANKS.values(), ids=NOT_RANKS)
def test_other_process_keeps_the_hook_but_does_not_answer(state: Path, without: dict[str, str | None]) -> None:
    env = {name: value for name, value in ({**environment(state), **without}).items() if value is not None}
    show = "import os, sys; print(os.environ['PYTHONPATH'], os.environ['PYTHONPATH'] in sys.path)"
    done = subprocess.run([PYTHON, "-c", show], env=env, capture_output=True, check=True, text=True)
    assert (done.stdout, done.stderr) == (f"{state}/hook False\n", "")
    assert list((state / "observe").iterdir()) == []


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_children_of_a_rank_do_not_answer(state: Path, tmp_path: Path, how: str) -> None:
    script = tmp_path / "loader.py"
    script.write_text(
        "import multiprocessing, subprocess, sys, threading\n"
        "def work(gate, out):\n"
        "    out.send('works')\n"
        "    gate.recv()\n"
        "if __name__ == '__main__':\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"  # like torch's threads
        f"    context = multiprocessing.get_context({how!r})\n"
        "    (hold, gate), (out, said) = context.Pipe(), context.Pipe()\n"
        "    worker = context.Process(target=work, args=(gate, said))\n"
        "    worker.start()\n"
        "    assert out.recv() == 'works'\n"
        "    other = subprocess.Popen([sys.executable, '-c', 'print(input())'], stdin=subprocess.PIPE)\n"
        "    print('waits', flush=True)\n"
        "    print(worker.pid, other.pid, flush=True)\n"
        "    sys.stdin.read()\n"
        "    other.communicate(b'ends')\n"
        "    hold.send(1)\n"
        "    worker.join()\n"
    )
    argv = [PYTHON, str(script)]
    with subprocess.Popen(argv, env=environment(state), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        below = [int(word) for word in process.stdout.readline().split()]
        folder = str(state / "observe")
        until(lambda: bool(observed.observed(process.pid, folder)["stack"]), PATIENCE, "the rank answers again")
        assert [path.name for path in (state / "observe").iterdir()] == [str(process.pid)]
        assert observed.answers(below, folder, hook.ALL) == {}
        process.communicate(b"")
        assert process.returncode == 0


def test_hook_thread_restarts_at_garbage_collection_after_a_fork(state: Path) -> None:
    """Python 3.12 and newer warn about a fork with threads. In older versions, the thread restarts immediately."""
    forks = "import gc, os, sys\nif not os.fork():\n    os._exit(0)\nprint('waits', flush=True)\n"
    with rank(state, forks + "for line in sys.stdin:\n    gc.collect()\n") as process:
        assert process.stdin is not None
        folder = str(state / "observe")
        while not observed.observed(process.pid, folder)["stack"]:
            process.stdin.write(b"\n")
            process.stdin.flush()


def test_rank_started_by_a_shell_answers(state: Path) -> None:
    argv = ["sh", "-c", f'"{PYTHON}" -c "$1"; true', "sh", WAITS]
    with subprocess.Popen(argv, env=environment(state), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        found = observed.observed(process.pid, str(state / "observe"))
        process.communicate(b"")
    assert "waits_here" in found["stack"][0]


def test_stopped_rank_is_reported(state: Path) -> None:
    with rank(state) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        found = observed.observed(process.pid, str(state / "observe"))
        process.send_signal(signal.SIGCONT)
    assert found["stack"] == []
    assert found["stack_why"] == "the rank is stopped by a signal (state T)"


def test_rank_holding_the_interpreter_lock_does_not_block(state: Path) -> None:
    held = "import ctypes\nprint('waits', flush=True)\nctypes.PyDLL(None).usleep(30_000_000)\n"
    with rank(state, held) as process:
        until(lambda: Path(f"/proc/{process.pid}/wchan").exists(), PATIENCE, "it is there")
        found = observed.observed(process.pid, str(state / "observe"))
    assert found["stack"] == [] or "<string>" in found["stack"][0]
    assert found["flight"] is None


def test_answer_of_another_process_is_rejected(state: Path) -> None:
    """The socket at the rank's path belongs to the test process."""
    with rank(state) as process, socket.socket(socket.AF_UNIX) as false:
        path = state / "observe" / str(process.pid)
        path.unlink()
        false.bind(str(path))
        false.listen()
        assert observed.answers([process.pid], str(state / "observe"), hook.ALL) == {}


def test_hook_tolerates_a_script_that_closes_all_files(state: Path) -> None:
    closes = "import os, sys\nos.closerange(3, 1000)\nprint('waits', flush=True)\nsys.exit(len(sys.stdin.read()))\n"
    with rank(state, closes) as process:
        assert observed.observed(process.pid, str(state / "observe"))["stack"] == []
        process.communicate(b"four")
        assert process.returncode == 4


def test_hook_tolerates_a_script_that_forks_repeatedly(state: Path) -> None:
    forks = "import os\nfor _ in range(50):\n    pid = os.fork()\n    if not pid: os._exit(0)\n    os.waitpid(pid, 0)\n"
    with rank(state, forks + "import threading\nthreading.Thread(target=int).start()\n" + WAITS) as process:
        assert Path(f"/proc/{process.pid}/task").is_dir()
        process.communicate(b"")
        assert process.returncode == 0
    assert list((state / "observe").iterdir()) == []
