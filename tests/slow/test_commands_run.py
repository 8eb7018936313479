"""Run every Muster command in README and the user docs unchanged on three sandbox nodes.

tests/shown_commands.yml lists the commands in order, and the reasons why some commands are not run.
tests/integration/desk.py prepares the prerequisites named in the pages and fills in placeholders (node names, launch
ids).
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from desk import Desk
from machines import NODES, find_machine, list_nodes, run_playbook
from people import people
from shown_commands import of_readers, table
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

SHOWN = of_readers()


def each(group: str) -> pytest.MarkDecorator:
    """Parametrize a test with the commands of a group. A test id consists of the first page that shows the command and
    the command's name."""
    entries: dict[str, Any] = table()["run"][group]
    names = [pytest.param(name, id=f"{Path(SHOWN[name].pages[0]).stem}: {name}") for name in entries if name in SHOWN]
    return pytest.mark.parametrize("name", names)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Yield the workplace with three running nodes in any state and a user account."""
    list_nodes()
    up = run_playbook(tmp_path_factory.mktemp("up"), "playbooks/sandbox_up.yml")
    assert up.rc == 0, up.stdout
    nodes = [find_machine(name) for name in NODES]
    with people(nodes, anna=4101) as (anna,), tempfile.TemporaryDirectory(prefix="desk-", dir="/tmp") as folder:
        made = Desk(Path(folder), nodes, anna)
        made.set_up()
        yield made
        made.clear_nodes()


@pytest.fixture(scope="module")
def prepared(desk: Desk) -> Desk:
    """Yield the workplace after all steps have run, with the files that the pages name as prerequisites."""
    desk.bring_to_nodes()
    return desk


@pytest.fixture(scope="class")
def held(prepared: Desk) -> Iterator[Desk]:
    """Make the training run until it is stopped."""
    prepared.hold(on=True)
    yield prepared
    prepared.hold(on=False)
    until(lambda: not prepared.launches(), PATIENCE, "the last launch has ended")


def run_command(desk: Desk, group: str, name: str) -> None:
    entry: str | dict[str, Any] = table()["run"][group][name]
    expected: dict[str, Any] = {"last": entry} if isinstance(entry, str) else entry
    if "anew" in expected:
        shutil.rmtree(desk.checkout / expected["anew"], ignore_errors=True)
    words = {key: expected[key] for key in ("more", "answers") if key in expected}
    said = desk.run_command(SHOWN[name].command, folder=expected.get("in", "muster"), **words)
    assert said.status == expected.get("ends", 0), str(said)
    assert re.search(expected["last"], said.last), str(said)


@each("first_day")
def test_first_day_commands_succeed(desk: Desk, name: str) -> None:
    run_command(desk, "first_day", name)


@each("looks")
def test_check_commands_succeed(prepared: Desk, name: str) -> None:
    run_command(prepared, "looks", name)


@each("launches")
def test_launch_commands_succeed(prepared: Desk, name: str) -> None:
    run_command(prepared, "launches", name)


class TestRunningLaunch:
    @each("running")
    def test_running_launch_commands_succeed(self, held: Desk, name: str) -> None:
        run_command(held, "running", name)


@each("own")
def test_user_launch_commands_succeed(prepared: Desk, name: str) -> None:
    run_command(prepared, "own", name)


@each("data_and_steps")
def test_data_and_step_commands_succeed(prepared: Desk, name: str) -> None:
    run_command(prepared, "data_and_steps", name)


@each("examples")
def test_example_commands_succeed(prepared: Desk, name: str) -> None:
    run_command(prepared, "examples", name)


@each("acceptance")
def test_acceptance_commands_succeed(prepared: Desk, name: str) -> None:
    run_command(prepared, "acceptance", name)


@each("members")
def test_member_commands_succeed(prepared: Desk, name: str) -> None:
    run_command(prepared, "members", name)


@each("demo")
def test_demo_commands_succeed(desk: Desk, name: str) -> None:
    """The demo runs in its own sandbox, which the last command removes."""
    run_command(desk, "demo", name)
