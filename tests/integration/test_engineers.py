"""Two users without sudo launch on three nodes from a shared inventory folder and fetch their results."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from launch_users import forget_launch_users
from machines import NODES
from paths import NAME, ROOT
from people import check_out, people
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play
    from people import Person

SCRIPT = ROOT / "tests/integration/payloads/engineer.py"
LAUNCH = ("ansible-playbook", "playbooks/launch.yml", "-i", "../lab", "-e", "launch_script_src=../train.py")
GATE = "/var/tmp/muster-test-gate"
CLUSTER = "sandbox" if NAME == "muster" else NAME


@pytest.fixture(scope="module")
def nodes(with_pytorch: None, node: Callable[[str], Machine]) -> list[Machine]:
    machines = [node(name) for name in NODES]
    for machine in machines:
        forget_launch_users(machine)
    return machines


@pytest.fixture(scope="module")
def engineers(nodes: list[Machine], play: Play) -> Iterator[tuple[Person, Person]]:
    """Yield two users with an account, a key, a checkout, a script, and the shared folder."""
    with people(nodes, anna=2001, ben=2002) as (anna, ben):
        made = play("site.yml", tags="launch_users", extravars={"launch_users": ["anna", "ben"]})
        assert made.rc == 0, made.stdout
        shared = play("playbooks/share.yml", extravars={"share_to": str(anna.folder / "lab")})
        assert shared.rc == 0, shared.stdout
        shutil.copytree(anna.folder / "lab", ben.folder / "lab")
        for person in (anna, ben):
            check_out(person)
            shutil.copy(SCRIPT, person.folder / "train.py")
        try:
            yield anna, ben
        finally:
            for machine in nodes:
                machine.inside("rm", "-f", GATE)
                machine.inside("systemctl", "stop", *(f"user@{person.uid}.service" for person in (anna, ben)))
            assert play("site.yml", tags="launch_users", extravars={"launch_users": []}).rc == 0


def launches(person: Person) -> list[Path]:
    return sorted((person.checkout / "artifacts" / CLUSTER).glob("2*-*-*/plan.json"))


def newest(person: Person) -> Path:
    """Return the folder of this user's newest launch."""
    return launches(person)[-1].parent


def verdict(person: Person) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((newest(person) / "verdict.json").read_text())
    return said


def owners(machine: Machine, person: Person) -> set[str]:
    found = machine.inside("find", f"/var/lib/muster/users/{person.name}", "-printf", "%u\\n").stdout
    return set(found.split())


def test_user_launches_from_the_shared_folder_and_fetches_results(
    nodes: list[Machine], engineers: tuple[Person, Person]
) -> None:
    anna, _ = engineers
    run = anna.run(*LAUNCH, "-e", '{"launch_fetch": ["result-*.txt"]}')
    assert run.returncode == 0, run.stdout + run.stderr
    assert "rank 0 as uid 2001 knows the sum 3" in run.stdout
    assert "User launch by anna, without root" in run.stdout
    assert verdict(anna)["status"] == "healthy"
    plan = json.loads((newest(anna) / "plan.json").read_text())
    assert (plan["manager"], plan["user"]) == ("user", "anna")
    fetched = sorted(path.read_text() for path in newest(anna).glob("fetched/*/**/result-*.txt"))
    assert fetched == ["3\n"] * 3
    for machine in nodes:
        assert owners(machine, anna) == {"anna"}
        assert machine.inside("find", "/var/lib/muster/users/anna", "-name", "result-*.txt").stdout.count("\n") == 1
        assert "anna" not in machine.inside("journalctl", "--quiet", "--identifier=sudo", check=False).stdout


@pytest.mark.slow
def test_second_launch_is_refused_or_waits(nodes: list[Machine], engineers: tuple[Person, Person]) -> None:
    anna, ben = engineers
    before = len(launches(anna))
    log = anna.folder / "launch.log"
    with log.open("w") as stream:
        argv = anna.command(*LAUNCH, "-e", f'{{"launch_args": ["{GATE}"]}}')
        first = subprocess.Popen(
            argv,
            cwd=anna.checkout,
            env=anna.environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    until(lambda: "knows the sum 3" in log.read_text() or first.poll() is not None, PATIENCE, "anna's ranks run")
    assert first.poll() is None, log.read_text()
    assert len(launches(anna)) == before + 1
    launch_id = newest(anna).name

    refused = ben.run(*LAUNCH)
    assert refused.returncode != 0
    assert launch_id in refused.stdout
    assert "anna" in refused.stdout

    # He can neither stop her launch nor read its output.
    shutil.copytree(newest(anna), ben.checkout / "artifacts" / CLUSTER / launch_id)
    stopped = ben.run("ansible-playbook", "playbooks/launch.yml", "-i", "../lab", "-e", f"launch_stop={launch_id}")
    assert stopped.returncode != 0
    assert f"launch {launch_id} is a user launch of anna, but the login account is ben" in " ".join(
        stopped.stdout.split()
    )
    assert first.poll() is None
    looked = ben.ssh(nodes[0], "ls /var/lib/muster/users/anna /run/user/2001", check=False)
    assert looked.stdout == ""

    waiting = ben.folder / "launch.log"
    with waiting.open("w") as stream:
        second = subprocess.Popen(
            ben.command(*LAUNCH, "-e", "launch_wait=true"),
            cwd=ben.checkout,
            env=ben.environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    until(lambda: launch_id in waiting.read_text() or second.poll() is not None, PATIENCE, "ben waits for anna")
    assert second.poll() is None, waiting.read_text()
    assert "knows the sum" not in waiting.read_text()
    for machine in nodes:
        anna.ssh(machine, f"touch {GATE}")
    assert first.wait(PATIENCE) == 0, log.read_text()
    assert second.wait(PATIENCE) == 0, waiting.read_text()
    assert "rank 0 as uid 2002 knows the sum 3" in waiting.read_text()
    for machine in nodes:
        assert owners(machine, ben) == {"ben"}
