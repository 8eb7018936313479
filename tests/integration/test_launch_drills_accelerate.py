"""The drills of launches, with accelerate in torchrun's place: what breaks is found and ended just the same."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

import brought
import test_launch_drills as drills
from drill import Drill, hit, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine

pytestmark = pytest.mark.slow

test_a_sound_launch_ends_well_and_leaves_nothing = drills.test_a_sound_launch_ends_well_and_leaves_nothing
test_exception_on_one_rank = drills.test_exception_on_one_rank
test_the_same_error_on_every_rank = drills.test_the_same_error_on_every_rank
test_kill_9_of_a_rank = drills.test_kill_9_of_a_rank
test_a_stopped_rank_ends_a_launch_without_progress = drills.test_a_stopped_rank_ends_a_launch_without_progress
test_a_rank_that_waits_elsewhere_holds_up_the_others = drills.test_a_rank_that_waits_elsewhere_holds_up_the_others
test_kill_9_of_the_unit = drills.test_kill_9_of_the_unit
test_the_unit_is_stopped_by_hand = drills.test_the_unit_is_stopped_by_hand
test_port_taken = drills.test_port_taken
test_disk_full_in_the_run_directory = drills.test_disk_full_in_the_run_directory
test_a_node_stopped_during = drills.test_a_node_stopped_during
test_a_frozen_node = drills.test_a_frozen_node
test_sshd_stopped_during = drills.test_sshd_stopped_during
test_ctrl_c = drills.test_ctrl_c
test_kill_9_of_ansible_playbook = drills.test_kill_9_of_ansible_playbook
test_the_whole_controller_is_gone = drills.test_the_whole_controller_is_gone
test_a_detached_launch_goes_on_alone = drills.test_a_detached_launch_goes_on_alone_and_is_seen_through_later
test_a_detached_launch_is_ended_on_request = drills.test_a_detached_launch_is_ended_on_request
test_a_time_limit_ends_a_launch = drills.test_a_time_limit_ends_a_launch
holder = drills.holder
provisioned = drills.provisioned
launch_user = drills.launch_user


@pytest.fixture
def nodes(provisioned: None, node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    machines = node("node1"), node("node2")
    for machine in machines:
        brought.install(machine)
    return machines


@pytest.fixture
def drill(request: pytest.FixtureRequest, tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Drill]:
    """An administrator's launch, or the own one of somebody."""
    user = getattr(request, "param", "")
    if user:
        request.getfixturevalue("launch_user")
    variables = {"launch_command": ["accelerate", "launch"], "cluster_torchrun": brought.TORCHRUN}
    drill = Drill(tmp_path, variables, user=user)
    yield drill
    for machine in nodes:
        if drill.run.is_dir() and drill.runs():
            drill.systemctl(machine, "stop", drill.unit(), check=False)
        machine.inside("rm", "--force", drill.gate)


@pytest.fixture
def table() -> Callable[[str, Drill, dict[str, Any]], None]:
    """The table of the drills is torchrun's."""
    return lambda _fault, _drill, _verdict: None


def test_kill_9_of_the_agent(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    drill.begin().in_step()
    agent = drill.agent("node2")
    drill.fault(lambda: hit(agent, signal.SIGKILL), lambda: agent not in processes(drill.launch_id))
    finding = drills.only_failure(drill.end())
    assert "accelerate itself was killed by SIGKILL" in finding["summary"]
    drills.nothing_is_left(drill, *nodes)
