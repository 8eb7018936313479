"""The user who started the launch presses Ctrl-C, or the controller is lost."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from drill import CLEAN, LEASE, PORT, Drill, hit, listening, processes, stop_family
from drill_ways import LIGHT, in_variants
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from machines import Machine

pytestmark = pytest.mark.moment


@in_variants("administrators", pipeline=LIGHT)
def test_ctrl_c_ends_the_launch(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    process = drill.begin_in_terminal()
    drill.in_step()
    drill.fault(lambda: os.write(drill.terminal, b"\x03"), lambda: b"^C" in drill.shown)
    drill.check_seconds(clean=CLEAN)
    assert process.wait(20) != 0
    until(drill.has_verdict, PATIENCE, "the verdict is written")
    verdict = drill.verdict()
    assert verdict["status"] == "unknown"
    assert "stopped early" in verdict["summary"]
    drill.check_nothing_left(*nodes)
    table("Ctrl-C in the terminal", drill, verdict)


@in_variants()
def test_killed_ansible_playbook_ends_the_launch(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    process = drill.begin_in_terminal()
    drill.in_step()
    drill.fault(process.kill, lambda: process.poll() == -signal.SIGKILL)
    drill.check_seconds(clean=CLEAN)
    until(drill.has_verdict, PATIENCE, "the verdict is written")
    assert "ansible-playbook was killed" in drill.verdict()["summary"]
    drill.check_nothing_left(*nodes)
    table("kill -9 of ansible-playbook", drill, drill.verdict())


@in_variants("administrators", "own", pipeline=LIGHT)
def test_launch_ends_after_the_controller_is_lost(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    """All processes of ansible-playbook are killed at once, so that only the leases can end the launch."""
    process = drill.begin_in_terminal()
    drill.in_step()

    def kill_all() -> None:
        for pid in stop_family(process.pid):
            hit(pid, signal.SIGKILL)

    drill.fault(kill_all, lambda: process.poll() is not None)
    assert len(processes(drill.launch_id)) >= 4  # still running at first
    assert drill.seconds_to_clean() > 2
    drill.check_seconds(clean=LEASE + CLEAN)
    for machine in nodes:
        assert PORT not in listening(machine.container)
    table("the whole controller gone; the leases end it", drill, {"summary": "(none: nobody is left to write one)"})
