"""A detached launch runs without its controller until it is stopped or reaches its time limit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from drill import LEASE, PAYLOAD, Drill, only_failure, processes
from drill_ways import LIGHT, in_variants
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from machines import Machine, Play

pytestmark = pytest.mark.moment


@in_variants("administrators")
def test_detached_launch_runs_alone_until_attached(drill: Drill, nodes: tuple[Machine, Machine], play: Play) -> None:
    drill.variables.update(launch_detached=True, launch_time_limit=600)
    verdict = drill.begin().end()
    assert verdict["status"] == "unknown"
    assert drill.runner.rc == 0
    launch_id = drill.launch_id
    # A step takes at least 0.1 s, so a lease would have expired after these steps.
    later = f"step {steps_on_the_node(drill, nodes[1]) + int(LEASE + 2) * 10}\n"
    until(lambda: later in drill.log_on(nodes[1], 1, "stdout"), PATIENCE, "the launch keeps running")
    assert len(processes(launch_id)) >= 8, "wrapper, agent and ranks must run without a supervisor"
    kept = {**drill.login, "cluster_artifacts_dir": str(drill.folder / "kept"), "launch_attach": launch_id}
    log = drill.run / "logs/node2/rank3.stdout.log"
    with ThreadPoolExecutor() as pool:
        attached = pool.submit(play, "playbooks/launch.yml", extravars=kept)
        try:
            until(lambda: log.exists() and later in log.read_text(), PATIENCE, "the controller receives logs again")
        finally:
            drill.open_gate(nodes[1])
        result = attached.result()
    assert result.rc == 0, result.stdout
    assert drill.verdict()["status"] == "healthy"
    steps = log.read_text().splitlines()
    assert steps == [f"step {step}" for step in range(len(steps))]
    drill.check_nothing_left(*nodes)


def steps_on_the_node(drill: Drill, node: Machine) -> int:
    return drill.log_on(node, 1, "stdout").count("\n")


@in_variants(pipeline=LIGHT)
def test_detached_launch_is_stopped_on_request(drill: Drill, nodes: tuple[Machine, Machine], play: Play) -> None:
    drill.variables.update(launch_detached=True, launch_time_limit=300)
    drill.begin().end()
    assert drill.runs()
    kept = {**drill.login, "cluster_artifacts_dir": str(drill.folder / "kept"), "launch_stop": drill.launch_id}
    result = play("playbooks/launch.yml", extravars=kept)
    assert result.rc == 0, result.stdout
    drill.check_nothing_left(*nodes)


@in_variants(pipeline=LIGHT)
def test_time_limit_ends_a_launch(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    drill.variables["launch_time_limit"] = 25 if drill.payload == PAYLOAD else 10  # starts faster without PyTorch
    finding = only_failure(drill.begin().end())
    assert finding["id"] == "launch.limit"
    drill.check_nothing_left(*nodes)
