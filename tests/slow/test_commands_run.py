"""Every command of Muster's own in README and in the docs for users, typed as it stands on three nodes of the sandbox.

tests/shown_commands.yml has them in their order, and those that are not run, with why. What a page has its reader bring
is brought, and what it leaves to the reader (names of nodes, an id of a launch) is put in: tests/integration/desk.py.
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
    """The commands of a group, called as the first page that shows them and as the table names them."""
    entries: dict[str, Any] = table()["run"][group]
    names = [pytest.param(name, id=f"{Path(SHOWN[name].pages[0]).stem}: {name}") for name in entries if name in SHOWN]
    return pytest.mark.parametrize("name", names)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Three nodes are up, whatever was done to them before; somebody has an account on them."""
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
def brought(desk: Desk) -> Desk:
    """The steps are done, and the nodes have what the pages have their readers bring."""
    desk.bring_to_nodes()
    return desk


@pytest.fixture(scope="class")
def held(brought: Desk) -> Iterator[Desk]:
    """A training goes on until it is ended."""
    brought.hold(on=True)
    yield brought
    brought.hold(on=False)
    until(lambda: not brought.launches(), PATIENCE, "the last of them has ended")


def try_it(desk: Desk, group: str, name: str) -> None:
    entry: str | dict[str, Any] = table()["run"][group][name]
    expected: dict[str, Any] = {"last": entry} if isinstance(entry, str) else entry
    if "anew" in expected:
        shutil.rmtree(desk.checkout / expected["anew"], ignore_errors=True)
    said = desk.type(SHOWN[name].command, more=expected.get("more", ""), answers=expected.get("answers", ()))
    assert said.status == expected.get("ends", 0), str(said)
    assert re.search(expected["last"], said.last), str(said)


@each("first_day")
def test_the_first_day(desk: Desk, name: str) -> None:
    try_it(desk, "first_day", name)


@each("looks")
def test_looks(brought: Desk, name: str) -> None:
    try_it(brought, "looks", name)


@each("launches")
def test_launches(brought: Desk, name: str) -> None:
    try_it(brought, "launches", name)


class TestWhatRuns:
    @each("running")
    def test_it_is_seen_followed_and_ended(self, held: Desk, name: str) -> None:
        try_it(held, "running", name)


@each("own")
def test_launches_of_ones_own(brought: Desk, name: str) -> None:
    try_it(brought, "own", name)


@each("data_and_steps")
def test_data_and_steps(brought: Desk, name: str) -> None:
    try_it(brought, "data_and_steps", name)


@each("examples")
def test_the_example(brought: Desk, name: str) -> None:
    try_it(brought, "examples", name)


@each("acceptance")
def test_acceptance(brought: Desk, name: str) -> None:
    try_it(brought, "acceptance", name)


@each("members")
def test_members(brought: Desk, name: str) -> None:
    try_it(brought, "members", name)


@each("demo")
def test_the_demo(desk: Desk, name: str) -> None:
    """In a sandbox of its own, which is gone with the last of them."""
    try_it(desk, "demo", name)
