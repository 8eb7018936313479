"""The whole road on the sandbox: it gets there, and going again changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from machines import Machine, Play, Result

NODES = ("node1", "node2", "node3")
# What a run that finds nothing to do may cost: tasks that really run, on one node.
MOST_TASKS = 6
# Tasks for all nodes that are the first node's: each of four steps that change nodes claims them and looks at them, as
# inspect does; the GPU stack is resolved; health reads the inventory, probes the links, tries RDMA and adds up; the
# acceptance test runs, is judged.
FOR_ALL = 16


@pytest.fixture(scope="module", autouse=True)
def road(play: Play) -> None:
    """The road was taken once, whatever the nodes were like before."""
    result = play("site.yml")
    assert result.rc == 0, result.stdout


@pytest.fixture(scope="module")
def again(play: Play, road: None) -> Result:
    """The road was taken once more."""
    return play("site.yml")


def test_going_again_changes_nothing(again: Result) -> None:
    assert again.rc == 0, again.stdout
    assert again.changed == []


def test_going_again_runs_few_tasks(again: Result) -> None:
    for name in NODES:
        assert again.stats["ok"][name] <= MOST_TASKS + (FOR_ALL if name == NODES[0] else 0)


def test_check_mode_finds_nothing_to_change(play: Play) -> None:
    result = play("site.yml", check=True)
    assert result.rc == 0, result.stdout
    assert result.changed == []


# Other tests take these steps alone on their way: test_baseline.py, drills.
@pytest.mark.slow
@pytest.mark.parametrize("tag", ["baseline", "pytorch", "ddp_smoke"])
def test_a_step_can_be_taken_alone(play: Play, tag: str) -> None:
    result = play("site.yml", tags=tag)
    assert result.rc == 0, result.stdout
    assert result.changed == []


@pytest.mark.parametrize("name", NODES)
def test_the_training_user_imports_pytorch(node: Callable[[str], Machine], name: str) -> None:
    command = "sudo -u muster /opt/muster/pytorch/current/bin/python -c 'import torch; print(torch.__version__)'"
    assert node(name).ssh(command).stdout.startswith("2.13.0")


def test_the_outsider_was_left_alone(node: Callable[[str], Machine]) -> None:
    assert node("outsider").inside("id", "muster", check=False).returncode != 0
    assert node("outsider").inside("test", "-e", "/opt/muster", check=False).returncode != 0
