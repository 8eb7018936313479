"""A node is switched off, frozen or unreachable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from drill import CLEAN, SILENCE, Drill, processes, wait_for_ssh
from drill_ways import LIGHT, USER, in_variants
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from machines import Machine

pytestmark = pytest.mark.moment


@in_variants("administrators", pipeline=LIGHT)
def test_stopped_node_ends_the_launch(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    agent = drill.agent("node2")
    try:
        drill.fault(lambda: nodes[1].podman("stop", "--time=0"), lambda: agent not in processes(drill.launch_id))
        verdict = drill.end()
    finally:
        nodes[1].podman("start")
        wait_for_ssh(nodes[1])
    finding = next(one for one in verdict["findings"] if one["status"] == "fail")
    assert finding["id"] == "launch.node"
    assert finding["node"] == "node2"
    drill.check_seconds(clean=SILENCE + CLEAN)
    drill.check_nothing_left(*nodes)
    table("node2 switched off", drill, verdict)


@in_variants()
def test_frozen_node_ends_the_launch(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.frozen = "node2"
    drill.begin().in_step()
    on_node1 = [pid for pid, env in processes(drill.launch_id).items() if env.get("MUSTER_NODE") == "node1"]
    agent = drill.agent("node2")
    frozen = Path(f"/proc/{agent}/cgroup").read_text()
    assert frozen
    drill.fault(lambda: nodes[1].podman("pause"), lambda: nodes[1].ssh_answers() is False)
    try:
        verdict = drill.end()
        assert not set(on_node1) & set(processes(drill.launch_id))
    finally:
        nodes[1].podman("unpause")
    finding = next(one for one in verdict["findings"] if one["status"] == "fail")
    assert finding["id"] == "launch.node"
    assert finding["node"] == "node2"
    assert "so processes of the launch might remain; they end when the lease expires" in json.dumps(verdict)
    # After the thaw, the node finds its lease expired and ends the rest of the launch by itself.
    until(lambda: not drill.runs(), PATIENCE, "the thawed node ends its part")
    wait_for_ssh(nodes[1])
    drill.check_seconds(clean=SILENCE + CLEAN)
    table("node2 frozen (podman pause); clean on node1", drill, verdict)


@in_variants()
def test_stopped_sshd_ends_the_launch(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    # A user launch runs in the user manager, which survives the end of the user's sessions.
    of_hers = "loginctl list-sessions --no-legend | while read -r session uid name rest; do"
    of_hers += f" test $name != {USER} || loginctl terminate-session $session; done"
    end_sessions = "systemctl kill --kill-whom=all ssh.service; systemctl stop ssh.service; "
    end_sessions += f"loginctl terminate-user admin; {of_hers}"
    try:
        drill.fault(lambda: nodes[1].inside("sh", "-c", end_sessions, check=False), lambda: not nodes[1].ssh_answers())
        verdict = drill.end()
        # The node is unreachable: its own lease has ended the launch there.
        until(lambda: not drill.runs(), PATIENCE, "the lease ends the launch")
        assert nodes[1].inside("systemctl", "--failed", "--no-legend", "--plain").stdout == ""
    finally:
        nodes[1].inside("systemctl", "start", "ssh.service")
    finding = next(one for one in verdict["findings"] if one["status"] == "fail")
    assert finding["id"] == "launch.node"
    assert finding["node"] == "node2"
    drill.check_seconds(clean=SILENCE + CLEAN)
    table("sshd of node2 stopped, its connections ended", drill, verdict)
