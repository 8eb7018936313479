"""Two users without sudo launch on three nodes from a shared inventory folder and fetch their results."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from conda_packages import make_channel
from counted import TRUST, gateway_of, relabelled_index
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
FILES = ("-e", "@../index.yml", "-e", "@../environments.yml")
ENVIRONMENT = ("ansible-playbook", "playbooks/environment.yml", "-i", "../lab", *FILES)
RELEASE = "2.99.0"
HERS = "/var/lib/muster/users/anna/envs"
IN_HERS = """
import os, sys
import tiny, torch
import torch.distributed as dist

dist.init_process_group("gloo")
sum_of_ranks = torch.ones(1) * dist.get_rank()
dist.all_reduce(sum_of_ranks)
print("ran in", sys.prefix, "as", os.getuid(), torch.__version__, tiny.VERSION, "sum", int(sum_of_ranks), flush=True)
dist.destroy_process_group()
"""
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


@pytest.fixture(scope="module")
def declared(nodes: list[Machine], engineers: tuple[Person, Person]) -> Iterator[dict[str, Any]]:
    """Serve packages to anna's environment, and yield the variables that declare it. Both users pass her file."""
    anna, _ = engineers
    index = relabelled_index(anna.folder, nodes[0], RELEASE)
    for machine in nodes[:2]:
        for person in engineers:
            person.ssh(machine, TRUST.format(gateway_of(machine)))
    (anna.folder / "mine.txt").write_text("tiny>=1,<2\n")
    mine = {"requirements": str(anna.folder / "mine.txt"), "torch": RELEASE}
    variables = {
        "cluster_own_environments": {"mine": mine},
        "cluster_launch_nodes": ["node1", "node2"],
        "pytorch_index_url": index.url,
    }
    index.start()
    yield variables
    index.stop()


def declare(person: Person, variables: dict[str, Any]) -> None:
    """Write the declarations, and the options of the build, which a launch rejects, into another file."""
    mine = {name: value for name, value in variables.items() if name.startswith("cluster_")}
    (person.folder / "environments.yml").write_text(json.dumps(mine))
    others = {name: value for name, value in variables.items() if name not in mine}
    (person.folder / "index.yml").write_text(json.dumps(others))


def changes(run: subprocess.CompletedProcess[str]) -> set[str]:
    """Return the numbers of changed tasks in the recap."""
    assert run.returncode == 0, run.stdout + run.stderr
    return set(re.findall(r"changed=(\d+)", run.stdout))


def built(machine: Machine) -> str:
    return machine.inside("sh", "-c", f"readlink {HERS}/mine/current || true").stdout


@pytest.fixture(scope="module")
def environment(nodes: list[Machine], engineers: tuple[Person, Person], declared: dict[str, Any]) -> None:
    """Build anna's environment on two nodes, after a check run that reported the change and changed nothing."""
    anna, _ = engineers
    declare(anna, declared)
    assert changes(anna.run(*ENVIRONMENT, "--check", "--diff")) > {"0"}
    assert not (anna.folder / "mine.lock.txt").exists()
    assert [built(machine) for machine in nodes] == [""] * 3
    run = anna.run(*ENVIRONMENT)
    assert changes(run) > {"0"}
    # One node downloads, and the other receives the wheels.
    assert "downloaded its wheels itself" not in run.stdout + run.stderr


def test_user_builds_an_environment_without_root(
    nodes: list[Machine], engineers: tuple[Person, Person], environment: None
) -> None:
    anna, ben = engineers
    lock = (anna.folder / "mine.lock.txt").read_text()
    assert f"# asked for: torch=={RELEASE}+cpu, tiny>=1,<2\n" in lock
    assert "\ntiny==1.0 --hash=sha256:" in lock
    first, second, third = nodes
    assert built(first) == built(second) != ""
    assert built(third) == ""
    for machine in (first, second):
        assert owners(machine, anna) == {"anna"}
        assert "anna" not in machine.inside("journalctl", "--quiet", "--identifier=sudo", check=False).stdout
        assert ben.ssh(machine, f"ls {HERS}", check=False).returncode != 0
    assert changes(anna.run(*ENVIRONMENT)) == {"0"}
    assert (anna.folder / "mine.lock.txt").read_text() == lock


def test_user_launches_in_the_own_environment(engineers: tuple[Person, Person], environment: None) -> None:
    anna, _ = engineers
    (anna.folder / "hers.py").write_text(IN_HERS)
    hers = ("-e", "@../environments.yml", "-e", "launch_environment=mine", "-e", "launch_script_src=../hers.py")
    run = anna.run(*LAUNCH, *hers, "-e", "launch_show_rank=1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(rf"ran in {HERS}/mine/\S+ as 2001 {RELEASE}\+cpu 1.0 sum 1", run.stdout)


# Makes an environment of anna's own, with the packages of the built one.
BY_HAND = f"""
python3 -m venv --without-pip ~/env
echo {HERS}/mine/current/lib/python3*/site-packages > $(echo ~/env/lib/python3*/site-packages)/mine.pth
sed "1s|.*|#!$HOME/env/bin/python|" {HERS}/mine/current/bin/torchrun > ~/env/bin/torchrun
chmod 755 ~/env/bin/torchrun
"""


def test_user_launches_in_an_environment_made_by_hand(
    nodes: list[Machine], engineers: tuple[Person, Person], environment: None, declared: dict[str, Any]
) -> None:
    anna, _ = engineers
    for machine in nodes[:2]:
        anna.ssh(machine, BY_HAND)
    home = anna.ssh(nodes[0], "echo $HOME").stdout.strip()
    declare(anna, {**declared, "cluster_own_environments": {"by_hand": {"prefix": f"{home}/env"}}})
    built_nothing = anna.run(*ENVIRONMENT)
    assert changes(built_nothing) == {"0"}
    assert "can change the code" not in built_nothing.stdout + built_nothing.stderr, "her own account"
    (anna.folder / "hers.py").write_text(IN_HERS)
    hers = ("-e", "@../environments.yml", "-e", "launch_environment=by_hand", "-e", "launch_script_src=../hers.py")
    run = anna.run(*LAUNCH, *hers, "-e", "launch_show_rank=1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"ran in {home}/env as 2001 {RELEASE}+cpu 1.0 sum 1" in run.stdout
    declare(anna, declared)


def test_user_builds_a_conda_environment_beside_it(
    nodes: list[Machine], engineers: tuple[Person, Person], environment: None, declared: dict[str, Any]
) -> None:
    pytest.importorskip("rattler", reason="conda packages need py-rattler on the controller (requirements/conda.txt)")
    anna, _ = engineers
    make_channel(anna.folder / "channel")
    text = f"channels: [{(anna.folder / 'channel').as_uri()}]\ndependencies: [greet, python 3.11.*]\n"
    (anna.folder / "bio.yml").write_text(text)
    both = {**declared["cluster_own_environments"], "bio": {"conda": str(anna.folder / "bio.yml")}}
    declare(anna, {**declared, "cluster_own_environments": both})
    assert changes(anna.run(*ENVIRONMENT)) > {"0"}
    assert "greet-1.0-0.tar.bz2" in (anna.folder / "bio.lock.txt").read_text()
    for machine in nodes[:2]:
        assert anna.ssh(machine, f"{HERS}/bio/current/bin/greet").stdout.startswith(f"greetings 1.0 from {HERS}/bio/")
        assert owners(machine, anna) == {"anna"}
    assert changes(anna.run(*ENVIRONMENT)) == {"0"}


def test_nobody_else_uses_the_environment(
    engineers: tuple[Person, Person], environment: None, declared: dict[str, Any], play: Play
) -> None:
    _, ben = engineers
    in_hers = (*LAUNCH, "-e", "@../environments.yml", "-e", "launch_environment=mine")
    names = {"cluster_launch_nodes": ["node1", "node2"]}
    declare(ben, names)
    assert "launch_environment is 'mine', which is not an environment of this cluster" in ben.run(*in_hers).stdout
    declare(ben, declared)
    run = ben.run(*in_hers)
    assert run.returncode != 0
    assert "/var/lib/muster/users/ben/envs/mine/current/bin/torchrun does not exist" in run.stdout
    assert "playbooks/environment.yml" in run.stdout
    declare(ben, {**names, "cluster_own_environments": {"mine": {"prefix": f"{HERS}/mine/current"}}})
    run = ben.run(*in_hers)
    assert run.returncode != 0
    assert f"{HERS}/mine/current/bin/torchrun" in run.stdout
    # Neither an administrator nor root takes the code of a user.
    run_of_admin = {**declared, "launch_environment": "mine", "launch_script": "/srv/x.py"}
    assert "is not in the group muster-launch" in play("playbooks/launch.yml", extravars=run_of_admin).stdout
    assert "admin is not in the group muster-launch" in play("playbooks/environment.yml", extravars=declared).stdout
    as_root = play("playbooks/environment.yml", extravars={**declared, "ansible_become": True})
    assert "root logs in, but an own environment belongs to an ordinary account" in as_root.stdout
    clash = {**declared, "cluster_environments": {"mine": {"provided": True}}}
    refused = play("playbooks/environment.yml", extravars=clash).stdout
    assert "'mine' is already an environment of the cluster (cluster_environments). Choose another name." in refused
    assert "no node was contacted" in refused


def test_environment_is_removed_only_on_request(
    nodes: list[Machine], engineers: tuple[Person, Person], environment: None, declared: dict[str, Any]
) -> None:
    anna, _ = engineers
    declare(anna, {**declared, "cluster_own_environments": {}})
    run = anna.run(*ENVIRONMENT)
    assert changes(run) == {"0"}
    assert "environment mine is not declared, and is kept (environment_prune)" in run.stdout + run.stderr
    prune = (*ENVIRONMENT, "-e", "environment_prune=true")
    assert changes(anna.run(*prune, "--check")) > {"0"}
    assert built(nodes[0]) != ""
    assert changes(anna.run(*prune)) > {"0"}
    for machine in nodes[:2]:
        assert machine.inside("ls", "/var/lib/muster/users/anna").stdout.split().count("envs") == 0
    assert changes(anna.run(*prune)) == {"0"}
