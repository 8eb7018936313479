"""Start, observe and end the launches of the drills from outside.

The sandbox nodes share this machine's kernel. Their processes are visible in the local /proc and can be signalled from
here, independently of the supervisor.
"""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ansible_runner

from machines import never
from paths import ARTIFACTS, BIN, ENVIRONMENT, INVENTORY, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from machines import Machine

PAYLOAD = ROOT / "tests/integration/payloads/steps.py"
LIGHT_PAYLOAD = ROOT / "tests/integration/payloads/light_steps.py"
PORT = 29500
# The limits follow the documented times: a failure is noticed within 3 s (a silent node is reported after 5 s and given
# up at 9 s), and everything is clean 10 s later. They leave room for two busy cores, and more under load; see
# Drill.check_seconds.
NOTICED = 8.0  # 2 to 4 s on an idle machine
SILENCE = 9.0
CLEAN = 13.0
LEASE = 11.0


def read_proc(pid: int, name: str) -> str:
    """Read a file of a process. Return "" if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def environ(pid: int) -> dict[str, str]:
    return dict(item.split("=", 1) for item in read_proc(pid, "environ").split("\0") if "=" in item)


def fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name (state, parent, ...). Return [] if the process has ended."""
    return read_proc(pid, "stat").rpartition(")")[2].split()


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def processes(launch_id: str) -> dict[int, dict[str, str]]:
    """Return the processes of a launch on all nodes as {local pid: environment}."""
    found = {pid: environ(pid) for pid in all_pids()}
    return {pid: env for pid, env in found.items() if env.get("MUSTER_LAUNCH_ID") == launch_id}


def family(pid: int) -> set[int]:
    """Return a process and its descendants."""
    parents = {one: int(shown[1]) for one in all_pids() if (shown := fields(one))}
    found, new = set[int](), {pid}
    while new:
        found |= new
        new = {one for one, parent in parents.items() if parent in new} - found
    return found


def stop_family(pid: int) -> set[int]:
    """Stop a process and its descendants with SIGSTOP, so that none of them exits or forks."""
    stopped: set[int] = set()
    while new := family(pid) - stopped:
        for one in new:
            with suppress(ProcessLookupError):
                hit(one, signal.SIGSTOP)
        stopped.update(new)
        until(lambda: not any(moves(one) for one in stopped), PATIENCE, "they stand still")
    return {one for one in stopped if fields(one)[:1] == ["T"]}


def moves(pid: int) -> bool:
    return fields(pid)[:1] not in ([], ["T"], ["Z"])


def listening(container: str) -> set[int]:
    """Return the TCP ports with a listener in this container."""
    inspected = subprocess.run(
        ["podman", "inspect", "--format", "{{.State.Pid}}", container], check=True, capture_output=True, text=True
    )
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{inspected.stdout.strip()}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return ports


@dataclass
class Drill:
    """One launch in the background. Default: two nodes with two ranks each."""

    folder: Path
    variables: dict[str, Any] = field(default_factory=dict)
    inventory: Path = INVENTORY
    fault_at: float = 0.0
    gone_at: float = 0.0
    stretch: float = 1.0
    frozen: str = ""
    # The user of a user launch. Empty for an administrator launch.
    user: str = ""
    playbook: str = "playbooks/launch.yml"
    payload: Path = PAYLOAD
    thread: threading.Thread | None = None
    process: subprocess.Popen[bytes] | None = None
    # A file on a node. Until it exists, the ranks keep running in step and the launch does not change.
    gate: str = field(default_factory=lambda: f"/run/muster-test-gate-{uuid.uuid4().hex}")

    def begin(self, *arguments: str) -> Drill:
        """Start the launch with ansible-runner."""
        self.thread, self.runner = ansible_runner.run_async(
            private_data_dir=str(self.folder),
            project_dir=str(ROOT),
            playbook=self.playbook,
            inventory=str(self.inventory),
            envvars=ENVIRONMENT,
            extravars=self.request(*arguments),
            quiet=True,
            cancel_callback=never,
        )
        return self

    def begin_in_terminal(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the launch with ansible-playbook in its own terminal, which accepts key presses."""
        master, slave = pty.openpty()
        self.terminal = master
        self.shown = bytearray()
        variables = json.dumps(self.request(*arguments))
        self.process = subprocess.Popen(
            # --ctty makes the terminal the controlling terminal of the new session, so that Ctrl-C is a signal.
            [
                "setsid",
                "--ctty",
                BIN / "ansible-playbook",
                self.playbook,
                "-i",
                self.inventory,
                "-e",
                variables,
            ],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        threading.Thread(target=self.read_terminal, daemon=True).start()
        return self.process

    def read_terminal(self) -> None:
        try:
            while data := os.read(self.terminal, 65536):
                self.shown += data
        except OSError:
            return  # the other end is closed

    def request(self, *arguments: str) -> dict[str, Any]:
        return {
            "launch_script_src": str(self.payload),
            "launch_args": [f"--until={self.gate}", *arguments],
            "cluster_nproc_per_node": 2,
            "cluster_launch_nodes": ["node1", "node2"],
            "cluster_artifacts_dir": str(self.folder / "kept"),
            **self.login,
            **self.variables,
        }

    @property
    def login(self) -> dict[str, str]:
        """Return the variables for SSH logins. The login user determines whether the launch is a user launch."""
        return {"ansible_user": self.user} if self.user else {}

    # ------------------------------------------------------------ while it runs

    @property
    def run(self) -> Path:
        return (self.folder / "kept" / ARTIFACTS.name / "latest").resolve()

    @property
    def launch_id(self) -> str:
        return self.run.name

    def is_running(self) -> bool:
        """Return whether the playbook run that started the launch is still running."""
        return self.process.poll() is None if self.process else bool(self.thread and self.thread.is_alive())

    def in_step(self, ranks: int = 4) -> Drill:
        """Wait until every rank has printed step 3 in its log on the controller."""

        def stepped() -> bool:
            why = self.verdict()["summary"] if self.run.is_dir() and self.has_verdict() else "no verdict"
            assert self.is_running(), f"the play ended too early: {why}"
            logs = list(self.run.glob("logs/*/rank*.stdout.log"))
            return len(logs) == ranks and all("step 3\n" in log.read_text() for log in logs)

        until(stepped, PATIENCE, "all ranks in step")
        return self

    def pid(self, rank: int) -> int:
        return next(pid for pid, env in processes(self.launch_id).items() if env.get("RANK") == str(rank))

    def agent(self, node: str) -> int:
        """Return the pid of torchrun on a node. The environment of torchrun contains the launch id, but not RANK."""
        found = [
            pid
            for pid, env in processes(self.launch_id).items()
            if env.get("MUSTER_NODE") == node and "RANK" not in env and "torchrun" in read_proc(pid, "cmdline")
        ]
        assert len(found) == 1, found
        return found[0]

    def runs(self) -> bool:
        return bool(processes(self.launch_id))

    def open_gate(self, machine: Machine) -> None:
        machine.inside("touch", self.gate)

    def has_verdict(self) -> bool:
        return (self.run / "verdict.json").exists()

    def unit(self) -> str:
        return f"muster-launch-{self.launch_id}.service"

    def systemctl(self, machine: Machine, *words: str, check: bool = True) -> str:
        """Run systemctl for the manager that owns the launch unit on a node: of the system, or of the launch user."""
        if not self.user:
            return machine.inside("systemctl", *words, check=check).stdout
        asked = f"XDG_RUNTIME_DIR=/run/user/$(id -u) exec systemctl --user {shlex.join(words)}"
        return machine.inside("su", "--shell", "/bin/sh", self.user, "--command", asked, check=check).stdout

    def clean_up(self, machines: Iterable[Machine]) -> None:
        """Stop the launch if it is still running, so that a failed test does not affect the next test."""
        for machine in machines:
            if self.run.is_dir() and self.runs():
                self.systemctl(machine, "stop", self.unit(), check=False)
            machine.inside("rm", "--force", self.gate)

    @property
    def node_folder(self) -> str:
        """Return the folder that contains the logs of the launch on its nodes."""
        above = f"/var/lib/muster/users/{self.user}" if self.user else "/var/lib/muster"
        return f"{above}/launches/{self.launch_id}"

    def log_path(self, local_rank: int, stream: str) -> str:
        return f"{self.node_folder}/logs/torchrun/*/attempt_0/{local_rank}/{stream}.log"

    def log_on(self, machine: Machine, local_rank: int, stream: str) -> str:
        """Return the output of a rank, read on its node."""
        return machine.inside("sh", "-c", f"cat {self.log_path(local_rank, stream)}", check=False).stdout

    def written_at(self, machine: Machine, local_rank: int) -> float:
        """Return the time at which a rank last wrote to stderr."""
        return float(machine.inside("sh", "-c", f"stat --format=%.Y {self.log_path(local_rank, 'stderr')}").stdout)

    def state_on(self, machine: Machine) -> str:
        above = "/run"
        if self.user:
            above = "/run/user/" + machine.inside("id", "--user", self.user).stdout.strip()
        return f"{above}/muster/launches/{self.launch_id}"

    def fault(self, act: Callable[[], Any], proof: Callable[[], Any]) -> Drill:
        """Inject the fault, wait until it is in effect, and note the time."""
        self.fault_at = time.time()
        act()
        until(proof, PATIENCE, "the fault is on")
        self.watch_the_end()
        return self

    def watch_the_end(self) -> None:
        """Record in the background when the last agent or rank ends. Processes on a frozen node are ignored."""
        launch_id = self.launch_id

        def runs() -> bool:
            nodes = {env.get("MUSTER_NODE") for env in processes(launch_id).values()}
            return bool(nodes - {None, self.frozen})

        def look() -> None:
            begun, worked, slept = time.monotonic(), time.thread_time(), 0.0
            while time.monotonic() < begun + PATIENCE and runs():
                time.sleep(0.1)
                slept += 0.1
            self.gone_at = time.time()
            # The slowdown compared with an exclusive processor.
            waited, needed = time.monotonic() - begun - slept, time.thread_time() - worked
            self.stretch = max(1.0, waited / needed)

        self.watcher = threading.Thread(target=look, daemon=True)
        self.watcher.start()

    # ------------------------------------------------------------ afterwards

    def wait(self, seconds: float = PATIENCE) -> None:
        assert self.thread is not None
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "the play is still running"

    def end(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """Wait for the play to end and return the verdict."""
        self.wait(seconds)
        return self.verdict()

    def verdict(self) -> dict[str, Any]:
        verdict: dict[str, Any] = json.loads((self.run / "verdict.json").read_text())
        return verdict

    def result(self) -> dict[str, Any]:
        """Return the result of the launch task."""
        for event in self.runner.events:
            data = event.get("event_data", {})
            if data.get("task_action") == "torchrun_launch" and "res" in data:
                found: dict[str, Any] = data["res"]
                return found
        raise AssertionError(self.runner.stdout.read())

    def seconds_to_notice(self) -> float:
        """Return the seconds from the fault until Muster first reported a problem or decided to end the launch."""
        timing = self.result()["timing"]
        # On a busy machine, an earlier notice may concern another delay.
        first: float = min([timing["noticed"], *(at for at in timing["notices"] if at >= self.fault_at)])
        return first - self.fault_at

    def seconds_to_clean(self) -> float:
        self.watcher.join(PATIENCE + 10)
        return self.gone_at - self.fault_at

    def check_seconds(self, *, clean: float, notice: float | None = None) -> None:
        """Check that the documented time limits are met, scaled by the slowdown that other processes cause."""
        assert self.seconds_to_clean() < clean * self.stretch
        assert notice is None or self.seconds_to_notice() < notice * self.stretch

    def check_nothing_left(self, *machines: Machine) -> None:
        assert processes(self.launch_id) == {}
        units = ("list-units", "--all", "--no-legend", "--plain", "muster-launch-*")
        for machine in machines:
            assert PORT not in listening(machine.container)
            assert self.launch_id not in self.systemctl(machine, *units, check=False)
            assert machine.inside("test", "-e", self.state_on(machine), check=False).returncode != 0


def only_failure(verdict: dict[str, Any]) -> dict[str, Any]:
    assert verdict["status"] == "failed", verdict
    failed = failures(verdict)
    assert len(failed) == 1, failed
    return failed[0]


def failures(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the failed findings without the cause, which is a separate finding."""
    return [one for one in verdict["findings"] if one["status"] == "fail" and one["id"] != "launch.cause"]


def hit(pid: int, number: signal.Signals) -> None:
    os.kill(pid, number)


def wait_for_ssh(machine: Machine) -> None:
    """Wait until the machine has booted and accepts SSH logins. Failed units are ignored."""
    ask = "systemctl is-system-running --wait"
    booted = ("running", "degraded")
    until(lambda: machine.ssh(ask, check=False).stdout.strip() in booted, PATIENCE, f"{machine.name} is back")
