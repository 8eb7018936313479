"""The main process of a launch's systemd unit, with a stub of torchrun."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import seats, state
from muster_node.launch.ending import END
from muster_node.programs import launch as node
from muster_node.tools import process as processes
from muster_node.tools.pack import pack
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LAUNCH_ID = "20260101-120000-abcd"


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts the main process with a script in place of torchrun. Kill the process after the
    test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        script: str = "",
        *,
        lease: float = 60.0,
        time_limit: float = 0,
        argv: list[str] | None = None,
        word: str = state.BEGIN,
        shared: bool = False,
        stop_timeout: float = 5.0,
    ) -> subprocess.Popen[bytes]:
        (tmp_path / "unit").mkdir()
        (tmp_path / "run/logs").mkdir(parents=True)
        spec = {
            "argv": argv or [sys.executable, "-c", script],
            "env": {"PATH": os.environ["PATH"]},
            "time_limit": time_limit,
            "run_dir": str(tmp_path / "run"),
            "log_max": 0,
            "shared": shared,
            "stop_timeout": stop_timeout,
        }
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        (tmp_path / "lease").write_bytes(state.new_lease(lease, word))
        (tmp_path / "seats").mkdir(exist_ok=True)
        (tmp_path / "seats/cpu").touch()
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


def read_table(tmp_path: Path) -> Any:
    path = tmp_path / "unit/ranks.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_successful_torchrun_is_recorded(launch: Any, tmp_path: Path) -> None:
    child = launch("print('agent', flush=True)")
    assert child.wait(5) == 0
    assert result(tmp_path) == {"reason": "exit", "code": 0}
    assert (tmp_path / "run/logs/agent.log").read_text() == "agent\n"


def test_failed_torchrun_is_recorded(launch: Any, tmp_path: Path) -> None:
    assert launch("raise SystemExit(3)").wait(5) == 0
    assert result(tmp_path) == {"reason": "exit", "code": 3}


def test_killed_torchrun_is_recorded(launch: Any, tmp_path: Path) -> None:
    assert launch("import os; os.kill(os.getpid(), 9)").wait(5) == 0
    assert result(tmp_path) == {"reason": "exit", "code": -9}


@pytest.mark.parametrize("argv", [["/no/such/torchrun"], [sys.executable, "-c", "a\0b"]])
def test_start_failure_is_recorded(launch: Any, tmp_path: Path, argv: list[str]) -> None:
    assert launch("", argv=argv).wait(5) == 0
    found = result(tmp_path)
    assert found["reason"] == "exec"
    assert found["error"]


def test_expired_lease_ends_the_launch(launch: Any, tmp_path: Path) -> None:
    assert launch("import time; time.sleep(30)", lease=0.3).wait(5) == 0
    assert result(tmp_path) == {"reason": "lease"}


def test_last_value_is_kept_if_the_lease_is_unreadable(launch: Any, tmp_path: Path) -> None:
    """A launch at its memory limit cannot open files for a while."""
    child = launch("import time; time.sleep(60)")
    until(lambda: read_table(tmp_path) is not None or processes.children(child.pid))
    lease = tmp_path / "lease"
    (tmp_path / "unreadable").symlink_to(lease)  # atomic, because a missing lease counts as expired
    (tmp_path / "unreadable").replace(lease)
    time.sleep(1)
    assert child.poll() is None
    (tmp_path / "new").write_bytes(state.new_lease(0.0, state.BEGIN))
    (tmp_path / "new").replace(lease)
    assert child.wait(60) == 0
    assert result(tmp_path) == {"reason": "lease"}


# An agent with one rank. On SIGTERM the rank sleeps, saves a checkpoint and exits, and the agent prints its exit code.
SAVING_AGENT = """
import os, subprocess, sys
rank = 'import pathlib, signal, time, sys;' \\
       'signal.signal(15, lambda *_: (time.sleep({}), pathlib.Path("{}").write_text("saved"), sys.exit(0)));' \\
       'pathlib.Path("{}.ready").touch(); time.sleep(60)'
code = subprocess.run([sys.executable, "-c", rank], env={{**os.environ, "RANK": "0", "LOCAL_RANK": "0"}}).returncode
print("rank ended with", code, flush=True)
"""


def test_time_limit_ends_the_launch(launch: Any, tmp_path: Path) -> None:
    assert launch("import time; time.sleep(30)", time_limit=0.3).wait(10) == 0
    assert result(tmp_path) == {"reason": "limit", "code": -15}


def test_ranks_can_save_a_checkpoint_at_the_time_limit(launch: Any, tmp_path: Path) -> None:
    child = launch(SAVING_AGENT.format(1, tmp_path / "saved", tmp_path / "saved"), time_limit=2, stop_timeout=20)
    until(lambda: read_table(tmp_path) and read_table(tmp_path)["ending"])
    assert read_table(tmp_path)["ending"]["reason"] == "limit"
    assert read_table(tmp_path)["ending"]["seconds"] == pytest.approx(20, abs=1)
    assert child.wait(30) == 0
    assert (tmp_path / "saved").read_text() == "saved"
    assert (tmp_path / "run/logs/agent.log").read_text() == "rank ended with 0\n", "torchrun itself got no signal"
    assert result(tmp_path) == {"reason": "limit", "code": 0}


def test_ranks_can_save_a_checkpoint_when_a_stop_is_requested(launch: Any, tmp_path: Path) -> None:
    child = launch(SAVING_AGENT.format(0.5, tmp_path / "saved", tmp_path / "saved"))
    until((tmp_path / "saved.ready").exists)
    state.renew_lease(str(tmp_path), 20.0, END)
    until(lambda: (read_table(tmp_path) or {}).get("ending"))
    state.renew_lease(str(tmp_path), 0.0)  # a renewal by the supervisor has no effect
    assert child.wait(30) == 0
    assert (tmp_path / "saved").read_text() == "saved"
    assert result(tmp_path) == {"reason": "asked", "code": 0}


def test_ranks_that_ignore_sigterm_are_killed(launch: Any, tmp_path: Path) -> None:
    child = launch(SAVING_AGENT.format(60, tmp_path / "saved", tmp_path / "saved"))
    until((tmp_path / "saved.ready").exists)
    state.renew_lease(str(tmp_path), 1.0, END)
    began = time.monotonic()
    assert child.wait(30) == 0
    assert time.monotonic() - began > 0.9
    assert result(tmp_path) == {"reason": "asked"}
    rank = read_table(tmp_path)["ranks"][0]
    until(lambda: not processes.runs(rank["pid"], rank["started"]))
    assert not (tmp_path / "saved").exists()


def test_launch_that_waits_for_slots_stops_immediately(launch: Any, tmp_path: Path) -> None:
    assert launch("", word=END).wait(5) == 0
    assert result(tmp_path) == {"reason": "asked"}


def test_renewed_lease_keeps_the_launch_running(launch: Any, tmp_path: Path) -> None:
    child = launch("import time; time.sleep(1)", lease=0.6)
    state.renew_lease(str(tmp_path), 60.0)
    assert child.wait(5) == 0


def test_stopped_unit_is_recorded(launch: Any, tmp_path: Path) -> None:
    child = launch("import time; print('up', flush=True); time.sleep(30)")
    until(lambda: (tmp_path / "run/logs/agent.log").exists() and (tmp_path / "run/logs/agent.log").read_text())
    os.killpg(child.pid, signal.SIGTERM)  # like systemd: signal all processes of the unit
    assert child.wait(5) == 0
    assert result(tmp_path) == {"reason": "stopped", "code": -signal.SIGTERM}


def test_stop_time_is_that_of_the_signal(launch: Any, tmp_path: Path) -> None:
    """Otherwise, a node that the supervisor stopped later could seem to have stopped first."""
    slow = "import signal, time; signal.signal(15, lambda *_: None); print('up', flush=True); signal.pause()"
    child = launch(f"{slow}; print('stopping', flush=True); signal.pause()")
    log = tmp_path / "run/logs/agent.log"
    until(lambda: log.exists() and log.read_text())
    os.killpg(child.pid, signal.SIGTERM)
    until(lambda: "stopping" in log.read_text())
    before = time.time()
    time.sleep(0.01)
    os.killpg(child.pid, signal.SIGTERM)
    assert child.wait(5) == 0
    found = json.loads((tmp_path / "unit/result.json").read_text())
    assert found["reason"] == "stopped"
    assert found["ended_at"] < before


def test_ranks_are_recorded_in_the_rank_table(launch: Any, tmp_path: Path) -> None:
    script = (
        "import os, subprocess, time\n"
        "env = dict(os.environ, RANK='3', LOCAL_RANK='1')\n"
        "rank = subprocess.Popen(['sleep', '0.4'], env=env)\n"
        f"os.mkdir({str(tmp_path / 'run/logs/torchrun')!r})\n"
        f"os.mkdir({str(tmp_path / 'run/logs/torchrun/job')!r}, 0o700)\n"
        "rank.wait(); time.sleep(0.4)\n"
    )
    child = launch(script)
    table = until(lambda: read_table(tmp_path))
    assert [(rank["rank"], rank["local_rank"], rank["gone_at"]) for rank in table["ranks"]] == [(3, 1, None)]
    assert child.wait(5) == 0
    assert read_table(tmp_path)["ranks"][0]["gone_at"] is not None
    assert (tmp_path / "run/logs/torchrun/job").stat().st_mode & 0o777 == 0o755


def lock_holders(tmp_path: Path) -> list[int]:
    return seats.locks().get(seats.name_of((tmp_path / "seats/cpu").stat()), [])


def test_launch_waits_for_slots_on_all_nodes(launch: Any, tmp_path: Path) -> None:
    child = launch("import time; time.sleep(60)", word=state.TAKE)
    until(lambda: lock_holders(tmp_path) == [child.pid])
    state.renew_lease(str(tmp_path), 60.0, state.LET_GO)
    until(lambda: not lock_holders(tmp_path))
    state.renew_lease(str(tmp_path), 60.0, state.TAKE)
    until(lambda: lock_holders(tmp_path) == [child.pid])
    assert not (tmp_path / "run/logs/agent.log").exists()
    state.renew_lease(str(tmp_path), 60.0)
    until(lambda: processes.children(child.pid))
    agent = processes.children(child.pid)[0]
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: not lock_holders(tmp_path))  # although the agent still runs
    os.kill(agent, signal.SIGKILL)


def test_launch_does_not_start_on_occupied_slots(launch: Any, tmp_path: Path) -> None:
    (tmp_path / "seats").mkdir()
    (tmp_path / "seats/cpu").touch()
    other = seats.Seats(str(tmp_path), shared=False)
    other.take()
    launch(lease=0.5).wait(60)
    assert result(tmp_path) == {"reason": "lease"}


def test_launch_without_supervisor_does_not_start(launch: Any, tmp_path: Path) -> None:
    assert launch("raise SystemExit(3)", word=state.TAKE, lease=0.1).wait(60) == 0
    assert result(tmp_path) == {"reason": "lease"}


def test_stop_before_the_start_is_recorded(launch: Any, tmp_path: Path) -> None:
    child = launch(word=state.TAKE)
    until(lambda: lock_holders(tmp_path))
    os.killpg(child.pid, signal.SIGTERM)
    assert child.wait(60) == 0
    assert result(tmp_path) == {"reason": "stopped"}


def test_shared_launch_starts_on_occupied_slots_and_locks_free_ones(launch: Any, tmp_path: Path) -> None:
    child = launch("import time; time.sleep(60)", shared=True, word=state.TAKE)
    until(lambda: lock_holders(tmp_path) == [child.pid])
    state.renew_lease(str(tmp_path), 60.0, state.LET_GO)
    until(lambda: not lock_holders(tmp_path))
    first = seats.Seats(str(tmp_path), shared=False)
    first.take()
    state.renew_lease(str(tmp_path), 60.0)
    until(lambda: processes.children(child.pid))
    assert lock_holders(tmp_path) == [os.getpid()]
    first.let_go()
    until(lambda: lock_holders(tmp_path) == [child.pid])


LAST = (77.0, "take")


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        ("", LAST),
        ("nonsense\n", LAST),
        ("nan begin\n", LAST),
        ("0.0\n", (0.0, "")),
        ("inf begin\n", (float("inf"), "begin")),
        ("1e18\n", (1e18, "")),
    ],
)
def test_lease_file_is_parsed(tmp_path: Path, content: str, seen: tuple[float, str]) -> None:
    (tmp_path / "lease").write_text(content)
    assert state.lease(str(tmp_path), LAST) == seen


def test_missing_lease_counts_as_expired(tmp_path: Path) -> None:
    assert state.lease(str(tmp_path), LAST) == (0.0, "")
    state.renew_lease(str(tmp_path), 10.0)  # the renewal creates no lease, because the launch was removed
    assert not (tmp_path / "lease").exists()


def test_infinite_lease_can_be_shortened(tmp_path: Path) -> None:
    (tmp_path / "lease").write_bytes(state.new_lease(float("inf"), state.BEGIN))
    assert state.lease(str(tmp_path)) == (float("inf"), state.BEGIN)
    state.renew_lease(str(tmp_path), -1.0)
    assert state.lease(str(tmp_path))[0] < time.monotonic()
