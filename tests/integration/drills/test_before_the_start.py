"""Problems that block a launch before its start."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from drill import PORT, Drill, listening, only_failure, processes, wait_for_ssh
from drill_ways import LIGHT, in_variants
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine

pytestmark = pytest.mark.moment


@pytest.fixture
def holder(nodes: tuple[Machine, Machine]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process outside of any launch that listens on the launch port of the head node."""
    code = f"import socket, sys; s = socket.create_server(('', {PORT})); sys.stdin.read()"
    argv = ["podman", "exec", "--interactive", nodes[0].container, "/usr/bin/python3", "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        until(lambda: PORT in listening(nodes[0].container), PATIENCE, "the port is in use")
        yield process


@in_variants("administrators", pipeline=LIGHT)
def test_port_in_use_is_reported(drill: Drill, nodes: tuple[Machine, Machine], holder: subprocess.Popen[bytes]) -> None:
    assert holder.poll() is None
    verdict = drill.begin().end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.port"
    assert finding["node"] == "node1"
    if drill.user:
        assert f"port {PORT} is held by a process of root that only root can inspect" in finding["summary"]
    else:
        assert f"port {PORT} is held by PID" in finding["summary"]
        assert "socket.create_server" in finding["summary"]
    assert "cluster_master_port=29501" in verdict["summary"]
    assert processes(drill.launch_id) == {}
    assert PORT in listening(nodes[0].container)  # the foreign listener must survive


@in_variants("administrators")
def test_stopped_node_blocks_a_launch(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    nodes[1].podman("stop", "--time=1")
    try:
        verdict = drill.begin().end()
    finally:
        nodes[1].podman("start")
        wait_for_ssh(nodes[1])
    finding = only_failure(verdict)
    assert finding["id"] == "launch.unreachable"
    assert finding["node"] == "node2"
    assert verdict["summary"].startswith("not started.")
    assert "node1" not in [one["node"] for one in verdict["findings"] if one["status"] != "pass"]
