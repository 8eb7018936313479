"""The removal of Muster from a cluster takes back everything that Muster put there.

footprint.py, which knows nothing of Muster, compares two nodes before Muster, after site.yml and after the removal. The
page docs/changes.md lists all differences. The removal is killed, repeated, and started while a node is down.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import footprint
import owned
from gpu_node import put
from killable import HOSTS, Run
from lab import SANDBOX_KNOWS, at, make_lab
from machines import find_machine, run_playbook
from paths import ROOT
from people import people
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from machines import Machine, Play, Result
    from people import Person

NODES = ("node1", "node2")
# Folders that the options of the runs name. The page has the default folders.
NAMED = ["/srv/data*", "/srv/scratch*"]
STAYS = owned.page()[owned.STAYS]
OF_USERS = {
    "/home/muster/thesis.txt": "years of work\n",
    "/var/lib/muster/work/20261124-101010-abcd/model.pt": "weights\n",
    "/var/lib/muster/users/anna/result": "hers\n",
}
# Tasks of the removal during which the run is killed.
NORMAL = ("firewall : Remove the Muster firewall rules and test a new connection", "pytorch : Remove the environ")
MORE = (
    "wipe : Check that the node is not in use",
    "ssh_mesh : Remove the keys and names of peers",
    "ssh_mesh : Remove the sshd settings",
    "cluster_hosts : Remove the node names",
    "launch_users : Remove the settings",
    "launch : Remove the logs",
    "package_sources : Revert",
    "node_baseline : Remove the training user",
)


def outside(machines: list[Machine]) -> dict[str, dict[str, str]]:
    return {machine.name: footprint.take(machine.container) for machine in machines}


def unexplained(before: Mapping[str, str], after: Mapping[str, str], names: owned.Names = STAYS) -> dict[str, str]:
    """Return the differences that are neither among these names nor files of a newly installed package."""
    names = {**names, "file": [*names["file"], *NAMED]}
    new = {key.partition(" ")[2] for key in after if key.startswith("package ") and key not in before}
    return {
        key: text
        for key, text in footprint.differences(before, after).items()
        if not owned.is_declared(key, names) and not (key in after and after[key].rpartition(" package ")[2] in new)
    }


def bare_machines(folder: Path) -> list[Machine]:
    for name in NODES:
        find_machine(name).podman("rm", "--force", "--time=0")
    done = run_playbook(folder, "playbooks/sandbox_up.yml", inventory=HOSTS)
    assert done.rc == 0, done.stdout
    return [find_machine(name) for name in NODES]


def words(variables: Mapping[str, Any]) -> list[str]:
    return ["-e", yaml.safe_dump(dict(variables), default_flow_style=True, width=10_000).strip()]


def remove(folder: Path, **variables: Any) -> Run:
    return Run(folder, "playbooks/remove.yml", *(words(variables) if variables else ()))


def killed_at(task: str, folder: Path, **variables: Any) -> Run:
    """Start the removal, and kill it during a task."""
    run = remove(folder, **variables)
    until(lambda: f"TASK [{task}" in run.shown or run.over_within(0), PATIENCE, task)
    assert not run.over_within(0.3), f"the run ended before {task}: {run.shown}"
    run.kill()
    return run


@pytest.fixture(scope="module")
def bare(sandbox: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Machine]]:
    """Yield new nodes, and remove them: they keep a home whose account is gone."""
    yield bare_machines(tmp_path_factory.mktemp("bare"))
    for name in NODES:
        find_machine(name).podman("rm", "--force", "--time=0")


@pytest.fixture(scope="module")
def anna(bare: list[Machine]) -> Iterator[Person]:
    for machine in bare:
        put(machine.container, "/etc/network/interfaces.d/training", "auto eth0\niface eth0 inet manual\n")
    with people(bare, anna=2001) as (anna,):
        yield anna


@pytest.fixture(scope="module")
def before(bare: list[Machine], anna: Person) -> dict[str, dict[str, str]]:
    return outside(bare)


@dataclass
class Story:
    """The runs, and the footprints of the nodes with Muster and after the removal. chosen: packages that are not only
    dependencies of others."""

    variables: dict[str, Any]
    launch: str = ""
    refused: Run | None = None
    partly: Run | None = None
    done: Run | None = None
    again: Run | None = None
    used: dict[str, dict[str, str]] = field(default_factory=dict)
    chosen: dict[str, set[str]] = field(default_factory=dict)
    stayed: dict[str, str] = field(default_factory=dict)
    after: dict[str, dict[str, str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return options that install as much as a machine without GPUs supports."""
    folder = tmp_path_factory.mktemp("options")
    (folder / "team.txt").write_text("six\n")
    return {
        "launch_users": ["anna"],
        "ssh_mesh_users": ["anna"],
        "workbench_nodes": ["node1"],
        "mtu_training": 1400,
        "firewall_tight": True,
        "shared_data_scratch": "/srv/scratch",
        "cluster_environments": {"team": {"requirements": str(folder / "team.txt")}},
    }


def ok(result: Result) -> Result:
    assert result.rc == 0, result.stdout
    return result


@pytest.fixture(scope="module")
def story(
    before: dict[str, dict[str, str]],
    bare: list[Machine],
    options: dict[str, Any],
    play: Play,
    tmp_path_factory: pytest.TempPathFactory,
) -> Story:
    folder, story = tmp_path_factory.mktemp("remove"), Story(options)
    first, second = bare
    ok(play("site.yml", extravars=options, inventory=HOSTS))
    data = folder / "data"
    data.mkdir()
    (data / "set").write_text("data\n")
    copied = {"data_copy_src": str(data), "data_copy_dest": "/srv/data"}
    ok(play("playbooks/data_copy.yml", extravars=copied, inventory=HOSTS))
    story.used = outside(bare)
    story.chosen = {machine.name: {*machine.inside("apt-mark", "showmanual").stdout.split()} for machine in bare}
    launch = {
        "launch_script_src": str(ROOT / "tests/integration/payloads/wait_for_gate.py"),
        "launch_args": ["--until=/nowhere"],
        "launch_detached": True,
        "launch_time_limit": 900,
    }
    started = ok(play("playbooks/launch.yml", extravars=launch, inventory=HOSTS))
    story.launch = started.results("Run torchrun on all participating nodes")["node1"]["plan"]["launch_id"]
    for path, text in OF_USERS.items():
        first.inside("sh", "-ec", 'mkdir -p "$(dirname "$1")"; printf %s "$2" >>"$1"', "sh", path, text)
    there = outside(bare)
    story.refused = remove(folder, **options).end()
    story.stayed = {
        key: text
        for name in NODES
        for key, text in footprint.differences(there[name], footprint.take(find_machine(name).container)).items()
        if story.launch not in key
    }
    killed_at(NORMAL[0], folder, remove_running=True, **options)
    assert all(machine.ssh_answers() for machine in bare)
    second.podman("stop", "--time=0")
    story.partly = remove(folder, remove_running=True, **options).end()
    second.podman("start")
    until(second.ssh_answers, PATIENCE, "node2 is back")
    killed_at(NORMAL[1], folder, **options)
    story.done = remove(folder, **options).end()
    story.again = remove(folder, **options).end()
    story.after = outside(bare)
    return story


def test_running_launches_are_named_before_anything_changes(story: Story) -> None:
    assert story.refused
    assert story.refused.rc != 0
    assert f"launch {story.launch} of muster" in story.refused.shown
    assert "-e remove_running=true" in story.refused.shown
    assert story.stayed == {}


def test_node_that_is_down_is_listed_with_the_command_that_finishes(story: Story) -> None:
    assert story.partly
    assert story.partly.rc != 0
    assert "Muster is removed from node1. Nothing was removed from node2 (node2: " in story.partly.shown
    assert "When all nodes respond, run: " in story.partly.shown.splitlines()[-1]


@pytest.mark.parametrize("name", NODES)
def test_page_declares_all_changes(story: Story, before: dict[str, dict[str, str]], name: str) -> None:
    names = owned.of_roles(owned.page())
    found = unexplained(before[name], story.used[name], names)
    dependencies = [one for one in found if one.startswith("package ") and one[8:] not in story.chosen[name]]
    assert {key: text for key, text in found.items() if key not in dependencies} == {}


@pytest.mark.parametrize("name", NODES)
def test_nothing_of_muster_stays(story: Story, before: dict[str, dict[str, str]], name: str) -> None:
    assert unexplained(before[name], story.after[name]) == {}


def test_kept_files_of_users_are_listed_at_the_end(story: Story, bare: list[Machine]) -> None:
    assert story.done
    assert story.again
    assert (story.done.rc, story.again.rc, story.again.changed) == (0, 0, 0), story.done.shown
    for path, text in OF_USERS.items():
        assert bare[0].inside("cat", path).stdout == text
    _, kept = story.done.shown.split("Kept, besides installed packages:")
    for path in ("/var/lib/muster/work", "/var/lib/muster/users"):
        assert f"node1: {path} is kept" in kept
    assert "DONE: Muster is removed from node1, node2. The inventory is unchanged: " in kept


@pytest.mark.slow
@pytest.mark.parametrize("task", MORE)
def test_killed_removal_is_completed_by_the_next_run(
    story: Story, before: dict[str, dict[str, str]], bare: list[Machine], play: Play, tmp_path: Path, task: str
) -> None:
    options = {"launch_users": ["anna"], "mtu_training": 1400}
    ok(play("site.yml", tags="baseline,network,launch_users", extravars=options, inventory=HOSTS))
    killed_at(task, tmp_path, **options)
    assert all(machine.ssh_answers() for machine in bare)
    again = remove(tmp_path, **options).end()
    assert again.rc == 0, again.shown
    after = outside(bare)
    assert {name: unexplained(before[name], after[name]) for name in NODES} == {name: {} for name in NODES}


def test_new_account_gets_the_uid_of_its_home(
    story: Story, before: dict[str, dict[str, str]], bare: list[Machine], play: Play, tmp_path: Path
) -> None:
    """An account with a higher uid changes the next free uid."""
    first = bare[0]
    owner = first.inside("stat", "--format=%u %g", "/home/muster").stdout.split()
    assert first.inside("getent", "passwd", owner[0], check=False).returncode != 0
    first.inside("useradd", "--uid=3000", "carol")
    try:
        ok(play("site.yml", tags="baseline,network", inventory=HOSTS))
        assert [first.inside("id", option, "muster").stdout.strip() for option in ("-u", "-g")] == owner
        again = remove(tmp_path).end()
        assert again.rc == 0, again.shown
    finally:
        first.inside("userdel", "carol")
    assert unexplained(before["node1"], footprint.take(first.container)) == {}


def test_last_node_can_be_retired_and_wiped(
    story: Story, before: dict[str, dict[str, str]], bare: list[Machine], play: Play, tmp_path: Path
) -> None:
    folder = make_lab(tmp_path / "lab", at(bare[0]))
    shutil.copy(SANDBOX_KNOWS, folder / "known_hosts")
    ok(play("site.yml", tags="baseline,network", inventory=folder))
    refused = play("playbooks/retire.yml", extravars={"node": "node1"}, inventory=folder)
    assert refused.rc != 0
    assert "The cluster would have no nodes left. To remove Muster" in refused.stdout
    done = ok(play("playbooks/retire.yml", extravars={"node": "node1", "wipe": "true"}, inventory=folder))
    left = done.results("Remove the nodes from the inventory")["node1"]
    assert left["outcome"] == "node1 has left the cluster; no node is left that takes part in launches"
    assert "node1" not in (folder / "hosts.yml").read_text()
    assert unexplained(before["node1"], footprint.take(bare[0].container)) == {}
