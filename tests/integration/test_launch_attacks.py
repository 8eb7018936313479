"""A hostile training user attacks a node while launches start, run, are inspected and end.

MUSTER_TEST_ATTACKS sets the number of launches. tests/unit/node/launch/test_attacks.py does the same without nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest

import standin_torchrun
from drill import Drill, all_pids, environ, hit, processes, read_proc
from paths import ROOT
from waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

pytestmark = pytest.mark.slow
LAUNCHES = int(os.environ.get("MUSTER_TEST_ATTACKS", "3"))
CANARY = "canary-that-nobody-may-see"
PAYLOADS = ROOT / "tests/integration/payloads"
HOSTILE = "/usr/local/lib/muster-tests/hostile_user.py"
SECRETS, PRIVATE = "/var/lib/muster-test", "/home/admin/muster-test"  # owned by root, and by the inspecting user
FOLDERS = ("/run/muster/launches/*/unit", "/var/lib/muster/launches/*/logs", "/var/lib/muster/work/*")
FOREIGN = (SECRETS, f"{SECRETS}/secret", PRIVATE, "/etc/shadow", "/etc/passwd", "/home/admin")


class Attack(NamedTuple):
    machine: Machine
    attacker: subprocess.Popen[str]
    pid: int
    victim: int

    def wait_for_attempts(self, times: int) -> None:
        """Wait until the attacker has made this many more attempts."""
        assert self.attacker.stdout
        for _ in range(times // 50):
            assert self.attacker.stdout.readline()


@pytest.fixture(scope="module")
def nodes(play: Play, node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    machines = node("node1"), node("node2")
    standin_torchrun.provide(play, *machines)
    return machines


@pytest.fixture
def attack(nodes: tuple[Machine, Machine]) -> Iterator[Attack]:
    """Start a hostile program as the training user of node1, and a process of root beside it."""
    machine = nodes[0]
    machine.inside("install", "-d", "-m", "700", SECRETS)
    machine.inside("sh", "-c", f"echo {CANARY} > {SECRETS}/secret && chmod 600 {SECRETS}/secret")
    machine.inside("install", "-m", "600", "-o", "admin", f"{SECRETS}/secret", PRIVATE)
    source = str(PAYLOADS / "hostile_user.py")
    subprocess.run(["podman", "cp", source, f"{machine.container}:{HOSTILE}"], check=True)
    victim = int(machine.inside("sh", "-c", "sleep 86400 > /dev/null 2>&1 & echo $!").stdout)
    mark = uuid.uuid4().hex
    argv = ["podman", "exec", "--user", "muster", "--env", f"MUSTER_TEST={mark}", machine.container]
    argv += ["python3", HOSTILE, "1", PRIVATE, SECRETS, str(victim), *FOLDERS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdout
        assert attacker.stdout.readline() == "at it\n"
        pid = next(pid for pid in all_pids() if environ(pid).get("MUSTER_TEST") == mark and "python" in argv0(pid))
        try:
            yield Attack(machine, attacker, pid, victim)
        finally:
            hit(pid, signal.SIGKILL)
            machine.inside("kill", str(victim), check=False)


def argv0(pid: int) -> str:
    return read_proc(pid, "cmdline").partition("\0")[0]


def standing(machine: Machine) -> str:
    return machine.inside("stat", "--format=%n %i %U %G %a %s %y", *FOREIGN).stdout


def test_hostile_training_user_reads_no_secrets_and_stops_no_launch(
    attack: Attack, nodes: tuple[Machine, Machine], tmp_path: Path
) -> None:
    before = standing(attack.machine)
    for number in range(LAUNCHES):
        folder = tmp_path / str(number)
        folder.mkdir()
        drill = Drill(
            folder,
            {
                "cluster_torchrun": standin_torchrun.TORCHRUN,
                "launch_script_src": str(PAYLOADS / "talk.py"),
                "launch_rendezvous_timeout": 600,
            },
        )
        hit(attack.pid, signal.SIGSTOP)
        drill.begin().in_step()
        hit(attack.pid, signal.SIGCONT)
        attack.wait_for_attempts(500)
        assert drill.is_running(), "the attacker's output ended the launch"
        assert len(processes(drill.launch_id)) >= 4 + 2 + 2
        began = time.monotonic()
        for machine in nodes:
            machine.inside("touch", drill.gate)
        assert drill.thread
        drill.thread.join(PATIENCE)
        assert not drill.is_running(), "the launch must have ended"
        print(f"launch {number}: over {time.monotonic() - began:.0f} s after its gate")
        assert processes(drill.launch_id) == {}
        kept = "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
        assert CANARY not in kept
        assert "root:" not in kept, "the artifacts contain lines of /etc/shadow"
        for machine in nodes:
            machine.inside("rm", "--force", drill.gate)
        # Reported as left behind: a process of the training user without a launch.
        assert "hostile_user.py" in kept
    assert standing(attack.machine) == before
    assert attack.machine.inside("ps", "-o", "state=", "-p", str(attack.victim)).stdout.strip() == "S"
