"""The complete pipeline on the sandbox: it succeeds, and a second run changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from machines import Machine, Play, Result

NODES = ("node1", "node2", "node3")
# Limit of executed tasks per node for a run without changes.
MOST_TASKS = 6
# Tasks for all nodes that run on the first node: claim and check in each of four steps that change nodes, and the check
# of inspect; resolving the GPU stack; health with inventory, link probe, RDMA test and summary; running and evaluating
# the acceptance test.
FOR_ALL = 16


@pytest.fixture(scope="module", autouse=True)
def pipeline(play: Play) -> None:
    """Run the pipeline once, on nodes in any state."""
    result = play("site.yml")
    assert result.rc == 0, result.stdout


@pytest.fixture(scope="module")
def again(play: Play, pipeline: None) -> Result:
    """Return the second run of the pipeline."""
    return play("site.yml")


def test_second_run_changes_nothing(again: Result) -> None:
    assert again.rc == 0, again.stdout
    assert again.changed == []


def test_second_run_executes_few_tasks(again: Result) -> None:
    for name in NODES:
        assert again.stats["ok"][name] <= MOST_TASKS + (FOR_ALL if name == NODES[0] else 0)


def test_check_mode_finds_nothing_to_change(play: Play) -> None:
    result = play("site.yml", check=True)
    assert result.rc == 0, result.stdout
    assert result.changed == []


# Other tests run the remaining steps alone: test_baseline.py, drills.
@pytest.mark.slow
@pytest.mark.parametrize("tag", ["baseline", "pytorch", "ddp_smoke"])
def test_step_can_run_alone(play: Play, tag: str) -> None:
    result = play("site.yml", tags=tag)
    assert result.rc == 0, result.stdout
    assert result.changed == []


@pytest.mark.parametrize("name", NODES)
def test_training_user_imports_pytorch(node: Callable[[str], Machine], name: str) -> None:
    command = "sudo -u muster /opt/muster/pytorch/current/bin/python -c 'import torch; print(torch.__version__)'"
    assert node(name).ssh(command).stdout.startswith("2.13.0")


def test_outsider_is_unchanged(node: Callable[[str], Machine]) -> None:
    assert node("outsider").inside("id", "muster", check=False).returncode != 0
    assert node("outsider").inside("test", "-e", "/opt/muster", check=False).returncode != 0
