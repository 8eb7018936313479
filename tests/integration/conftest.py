"""Start the sandbox for the integration tests. --count repeats the tests that are marked `moment`."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ctrl_c
from acceptance_runs import run_acceptance
from gpu_cluster import bring_up, look_up
from machines import NODES, find_machine, list_nodes, run_playbook
from races import table

ctrl_c.restore()
# The steps before the first driver or wheel is installed.
UP_TO_NETWORK = "inspect,baseline,network"

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acceptance_runs import Run
    from gpu_cluster import GpuCluster
    from machines import Machine, Play, Result


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nodes", help="test these nodes in their current state: create nothing, run no playbook")
    parser.addoption("--driver", default="580.178.04", help="driver version of the GPU nodes")
    parser.addoption("--sandbox-is-up", action="store_true", help="the sandbox was started by another checkout")
    parser.addoption("--count", type=int, default=1, help="number of runs of each test marked `moment`")
    parser.addoption("--resume", action="store_true", help="skip rows of the campaign that are already rated")
    parser.addoption("--busy", action="store_true", help="keep one processor busy during the tests")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    count = metafunc.config.getoption("--count")
    if count > 1 and metafunc.definition.get_closest_marker("moment"):
        if "turn" not in metafunc.fixturenames:
            metafunc.fixturenames.append("turn")
        turns = range(1, count + 1)
        metafunc.parametrize("turn", turns, indirect=True, scope="module", ids=[f"turn{turn}" for turn in turns])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that start from bare machines first, then tests of the resulting nodes."""
    order = ("test_pipeline.py", "test_network.py")
    items.sort(key=lambda item: order.index(item.path.name) if item.path.name in order else len(order))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--count") > 1:
        terminalreporter.section("races")
        for line in table(terminalreporter.stats):
            terminalreporter.line(line)


@pytest.fixture(scope="module")
def turn(request: pytest.FixtureRequest) -> int:
    """Return the number of the repetition. Module fixtures that use this fixture are recreated for each repetition."""
    return getattr(request, "param", 1)


@pytest.fixture(scope="session", autouse=True)
def busy(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep one processor busy during the tests if --busy is set, and stop when the tests end."""
    if not request.config.getoption("--busy"):
        yield
        return
    program = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        yield
        process.kill()


@pytest.fixture(scope="session")
def existing_nodes(request: pytest.FixtureRequest) -> list[str]:
    """Return the nodes that --nodes lists. They are tested in their current state."""
    return [name for name in (request.config.getoption("--nodes") or "").split(",") if name]


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the sandbox with three nodes and an outsider. The sandbox keeps running for the next test run."""
    list_nodes()
    if request.config.getoption("--sandbox-is-up"):
        return
    result = run_playbook(tmp_path_factory.mktemp("sandbox_up"), "playbooks/sandbox_up.yml")
    assert result.rc == 0, result.stdout


@pytest.fixture(scope="session")
def play(sandbox: None, tmp_path_factory: pytest.TempPathFactory) -> Play:
    def run(playbook: str, **requested: Any) -> Result:
        return run_playbook(tmp_path_factory.mktemp(Path(playbook).stem), playbook, **requested)

    return run


@pytest.fixture(scope="session")
def node(sandbox: None) -> Callable[[str], Machine]:
    """Look up a machine of the sandbox by its name in the inventory."""
    return find_machine


@pytest.fixture(scope="session")
def networked(existing_nodes: list[str], request: pytest.FixtureRequest) -> list[Machine]:
    """Run the steps up to network, and return the nodes."""
    if not existing_nodes:
        result = request.getfixturevalue("play")("site.yml", tags=UP_TO_NETWORK)
        assert result.rc == 0, result.stdout
    return [find_machine(name) for name in existing_nodes or NODES]


@pytest.fixture(scope="session")
def with_pytorch(networked: list[Machine], play: Play) -> None:
    """Set up the nodes with the training user, firewall rules for all nodes, and the environment."""
    del networked
    result = play("site.yml", tags="pytorch")
    assert result.rc == 0, result.stdout


@pytest.fixture(scope="session")
def three_nodes(with_pytorch: None) -> dict[str, Machine]:
    """Return the nodes by name, ready for a launch."""
    del with_pytorch
    return {name: find_machine(name) for name in NODES}


@pytest.fixture
def smoke(with_pytorch: None, play: Play, tmp_path: Path) -> Callable[..., Run]:
    return partial(run_acceptance, play, tmp_path)


@pytest.fixture(scope="session")
def gpu_cluster(existing_nodes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuCluster]:
    """Provide simulated GPU nodes with the GPU stack in a separate sandbox, which is removed after the tests."""
    folder = tmp_path_factory.mktemp("gpu_cluster")
    if existing_nodes:
        yield look_up(folder)
        return
    cluster = bring_up(folder)
    result = cluster.play()
    assert result.rc == 0, result.stdout
    yield cluster
    cluster.play("playbooks/sandbox_down.yml")
