"""The launcher or the whole unit of a node is killed or stopped."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from drill import CLEAN, NOTICED, Drill, hit, only_failure, processes
from drill_ways import LIGHT, in_variants

if TYPE_CHECKING:
    from machines import Machine

pytestmark = pytest.mark.moment


@in_variants("administrators", pipeline=LIGHT)
def test_killed_agent_is_reported(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    pid = drill.agent("node2")
    drill.fault(lambda: hit(pid, signal.SIGKILL), lambda: pid not in processes(drill.launch_id))
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.agent"
    assert finding["node"] == "node2"
    launcher = "accelerate" if "launch_command" in drill.variables else "torchrun"
    assert f"{launcher} itself was killed by SIGKILL" in finding["summary"]
    drill.check_seconds(notice=NOTICED, clean=CLEAN)
    drill.check_nothing_left(*nodes)
    table("kill -9 of the torchrun agent", drill, verdict)


@in_variants("administrators", pipeline=LIGHT)
def test_killed_unit_is_reported(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    agent = drill.agent("node1")
    drill.fault(
        lambda: drill.systemctl(nodes[0], "kill", "--signal=KILL", drill.unit()),
        lambda: agent not in processes(drill.launch_id),
    )
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.unit"
    assert finding["node"] == "node1"
    assert "killed from outside (SIGKILL)" in finding["summary"]
    drill.check_seconds(notice=NOTICED, clean=CLEAN)
    drill.check_nothing_left(*nodes)
    table("kill -9 of the unit", drill, verdict)


@in_variants()
def test_manually_stopped_unit_is_reported(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    agent = drill.agent("node2")
    drill.fault(
        lambda: drill.systemctl(nodes[1], "stop", "--no-block", drill.unit()),
        lambda: agent not in processes(drill.launch_id),
    )
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.unit"
    assert finding["node"] == "node2"
    assert "stopped from outside" in finding["summary"]
    drill.check_seconds(notice=NOTICED, clean=CLEAN)
    drill.check_nothing_left(*nodes)
    table("systemctl stop of the unit", drill, verdict)
