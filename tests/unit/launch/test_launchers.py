"""How the launch plan is passed to launch_command.

cases/launchers: command and other options -> the command arguments on the second of two nodes with two ranks each, and
the environment variables that contain the plan; or all problems.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.launch import launchers
from muster.launch.launchers import LaunchPlace

PLACE: dict[str, Any] = {
    "nnodes": 2,
    "node_rank": 1,
    "nproc": 2,
    "world_size": 4,
    "master_addr": "10.0.0.1",
    "master_port": 29500,
    "local_addr": "10.0.0.2",
    "launch_id": "20260101-120000-abcd",
    "log_dir": "/run/logs",
    "timeout": 120,
}
PATHS = ("tools/train.py", "run.sh")


@cases(__file__, "launchers")
def test_launch_command_gets_the_plan(case: dict[str, Any]) -> None:
    command, expected = case["command"], case["expect"]
    script = case.get("script", "")
    problems = launchers.problems_of(command, script=bool(script), chdir=case.get("chdir", False), project=False)
    assert problems == expected.get("problems", [])
    if "argv" in expected:
        place = LaunchPlace(**{**PLACE, **case.get("place", {})})
        program = [script] if script else case.get("program", [])
        assert launchers.argv_of(command, program, case.get("args", []), place) == expected["argv"]
    if "env" in expected:
        found = launchers.environment_of(command, case.get("backend", "gloo"), LaunchPlace(**PLACE))
        assert found == expected["env"]
    if "name" in expected:
        name = launchers.name_of(command)
        assert [name, launchers.spoken(name), launchers.log_name(name)] == expected["name"]
    if "warnings" in expected:
        assert launchers.warnings_of(command, 2) == expected["warnings"]
        assert launchers.warnings_of(command, 1) == []


def test_default_launcher_is_torchrun() -> None:
    assert launchers.name_of([]) == "torchrun"
    assert launchers.environment_of([], "gloo", LaunchPlace(**PLACE)) == {}
    assert launchers.problems_of([], script=False, chdir=False, project=False) == launchers.warnings_of([], 2) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "torchrun\n"])
def test_launcher_name_from_an_untrusted_plan_is_not_used(name: str) -> None:
    assert (launchers.log_name(name), launchers.spoken(name)) == ("command", "the command")


def test_accelerate_rejects_different_rank_counts_per_node() -> None:
    said = launchers.uneven(["accelerate", "launch"], {"node1": 2, "node2": 1})
    text = "accelerate needs the same number of ranks on all nodes, but they differ (node1 2, node2 1): "
    assert [one.partition("set cluster_nproc_per_node")[0] for one in said] == [text]
    assert launchers.uneven(["accelerate", "launch"], {"node1": 2, "node2": 2}) == []
    assert launchers.uneven(["torchrun"], {"node1": 2, "node2": 1}) == []
    assert launchers.uneven(["bash", "run.sh"], {"node1": 2, "node2": 1}) == []


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (
            "accelerate launch --config_file=c.yml tools/train.py a.py",
            "accelerate launch --config_file=c.yml {project}/tools/train.py a.py",
        ),
        ("bash run.sh", "bash {project}/run.sh"),
        ("accelerate launch -m tools.train run.sh", None),
        ("accelerate launch {script} run.sh", None),
        ("torchrun /srv/run.sh", None),
        ("mine --out=run.sh other.py", None),
        ("run.sh", None),
    ],
)
def test_script_in_a_command_is_found_in_the_project(command: str, found: str | None) -> None:
    words, problem = launchers.of_project(command.split(), lambda path: "" if path in PATHS else "none", chdir=False)
    assert (" ".join(words), problem) == (found or command, "")
    place = LaunchPlace(**PLACE, project="/run/project")
    assert "{project}" not in " ".join(launchers.argv_of(words, [], [], place))


def test_missing_script_of_a_known_launcher_is_rejected() -> None:
    for chdir, expected in ((False, "train.py is none"), (True, "")):
        words = ["torchrun", "train.py"]
        assert launchers.of_project(words, lambda path: f"{path} is none", chdir=chdir) == (words, expected)
    [problem] = launchers.problems_of(["bash", "{project}/x"], script=False, chdir=False, project=False)
    assert problem == "launch_command contains {project}, but no project is set: set launch_project."
    assert launchers.problems_of(["bash", "{project}/x"], script=False, chdir=False, project=True) == []
    assert launchers.warnings_of(["bash", "{project}/x"], 2)
