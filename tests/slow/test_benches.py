"""Start every measurement of tests/bench as its docstring shows, with its smallest size."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benches import NAMES, environment
from machines import list_nodes, run_playbook
from paths import ROOT

pytestmark = pytest.mark.slow

SMALLEST = {
    "diagnosis_score": ["open", "--json"],
    "fan_out": ["2", "1", "80", "1"],
    "firewall_peers": ["2"],
    "health_growth": ["2"],
    "launch_overhead": ["1", "2"],
    "launch_seconds": ["--without-pytorch", "1", "2"],
    "observation": ["1", "20"],
    "rerun": ["--times", "1", "2"],
    "status_seconds": ["1", "2"],
    "watching": ["2"],
}
SECONDS = 600


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bring up the sandbox with two nodes on which all steps up to pytorch have run."""
    list_nodes(2)
    steps = "inspect,baseline,network,gpu_stack,pytorch"
    for playbook, tags in (("playbooks/sandbox_up.yml", None), ("site.yml", steps)):
        play = run_playbook(tmp_path_factory.mktemp("up"), playbook, tags=tags)
        assert play.rc == 0, play.stdout


def test_every_measurement_is_listed() -> None:
    assert [*SMALLEST] == NAMES


@pytest.mark.usefixtures("finished")
@pytest.mark.parametrize("name", SMALLEST)
def test_measurement_runs_as_its_docstring_shows(name: str) -> None:
    argv = [sys.executable, f"tests/bench/{name}.py", *SMALLEST[name]]
    done = subprocess.run(
        argv, cwd=ROOT, env=environment(name), check=False, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
