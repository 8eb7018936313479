"""Run ansible-playbook so that all its processes can be killed, and test logins in parallel."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drill import all_pids, environ, read_proc
from paths import BIN, ENVIRONMENT, ROOT, SANDBOXES
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from machines import Machine

# Two nodes and the outsider, regardless of hosts_more.yml next to the file.
HOSTS = SANDBOXES / "hosts.yml"
MARK = "MUSTER_TEST_RUN"


class Run:
    """A run of ansible-playbook in its own session. As for a user, runs with the same folder share SSH connections."""

    def __init__(self, folder: Path, *arguments: str, inventory: Path = HOSTS) -> None:
        self.connections = folder / "cp"
        self.mark = uuid.uuid4().hex
        self.output = folder / f"{self.mark}.log"
        self.begun = time.monotonic()
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [BIN / "ansible-playbook", "-i", inventory, *arguments],
                cwd=ROOT,
                env={
                    **os.environ,
                    **ENVIRONMENT,
                    MARK: self.mark,
                    "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.connections),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self) -> Run:
        """Wait until the run ends by itself."""
        self.process.wait(timeout=600)
        self.seconds = time.monotonic() - self.begun
        return self

    def over_within(self, seconds: float) -> bool:
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill all processes of the run, as when the controller is lost: workers, ssh and its shared connections."""
        self.seconds = time.monotonic() - self.begun
        while pids := self.pids():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.poll()
        self.process.wait(timeout=10)

    def pids(self) -> list[int]:
        """Return the pids of the run, including its shared SSH connections, which are found by their path."""
        return [pid for pid in all_pids() if self.has(pid)]

    def has(self, pid: int) -> bool:
        shown = command(pid)
        return bool(shown) and (environ(pid).get(MARK) == self.mark or shown.startswith(f"ssh: {self.connections}"))

    @property
    def rc(self) -> int:
        return int(self.process.returncode)

    @property
    def shown(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.output.read_text(errors="replace"))

    @property
    def task(self) -> str:
        """Return the task during which the run ended."""
        begun = re.findall(r"^(?:TASK|PLAY) \[(.*)\] \**$", self.shown, re.MULTILINE)
        return str(begun[-1]) if begun else "before the first task"

    @property
    def changed(self) -> int:
        return sum(int(number) for number in re.findall(r" changed=(\d+) ", self.shown))


def moments(count: int, seconds: float) -> list[float]:
    """Return a reproducible pseudo-random time within each of `count` equal parts of a run of this length."""
    chance = random.Random(count)
    return [(number + chance.random()) / count * seconds for number in range(count)]


def command(pid: int) -> str:
    """Return the command line of a process. Return "" for a zombie."""
    return read_proc(pid, "cmdline").replace("\0", " ")


@dataclass
class Logins:
    """Results of repeated logins."""

    good: int = 0
    slowest: float = 0.0
    # Refused during a reload of sshd (0.1 s) and accepted at the next attempt.
    refused: int = 0
    failed: list[str] = field(default_factory=list)

    def keep_on(self, machine: Machine, stop: threading.Event) -> None:
        while not stop.wait(0.5):
            at, begun = time.time(), time.monotonic()
            done = machine.ssh("true", check=False)
            took = time.monotonic() - begun
            self.slowest = max(self.slowest, took)
            if done.returncode == 0:
                self.good += 1
            elif "Connection refused" in done.stderr and reloads(machine, at) and machine.ssh_answers():
                self.refused += 1
            else:
                self.failed.append(f"{machine.name} at {time.ctime(at)} after {took:.1f} s: {done.stderr.strip()}")


def reloads(machine: Machine, at: float) -> bool:
    """Return whether sshd was reloading at this time, and therefore did not listen on its port."""
    journal = ["journalctl", "--quiet", "--unit=ssh", f"--since=@{int(at) - 1}", f"--until=@{int(at) + 2}"]
    return "Received SIGHUP" in machine.inside(*journal, check=False).stdout


@contextmanager
def logins(machines: Sequence[Machine]) -> Iterator[Logins]:
    """Log in on the machines twice a second, each time with a new connection."""
    found, stop = Logins(), threading.Event()
    threads = [threading.Thread(target=found.keep_on, args=(machine, stop)) for machine in machines]
    for thread in threads:
        thread.start()
    try:
        until(lambda: found.good >= len(machines), PATIENCE, "the first logins")
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join()
