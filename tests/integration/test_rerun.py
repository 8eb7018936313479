"""A rerun: one look per node finds everything that the roles manage, and where nothing differs no role comes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from faults import PERSON, Fault, of_baseline, of_network, of_people, of_pytorch
from launch_users import forget_launch_users
from machines import NODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play, Result

ROAD = "inspect,baseline,network,gpu_stack,pytorch"
ROLES = {"node_baseline", "cluster_hosts", "ssh_mesh", "firewall", "pytorch", "launch_users"}
BOOK = "tests/integration/payloads/one_fault_each.yml"
NODE = "node1"
SWEEPS = (of_baseline, of_network, of_pytorch, of_people)


@pytest.fixture(scope="module")
def finished(play: Play, node: Callable[[str], Machine]) -> Iterator[dict[str, Any]]:
    """All steps up to the launch are done, with somebody who launches as herself; the variables to say so."""
    for name in NODES:
        forget_launch_users(node(name))
        node(name).inside("useradd", "--create-home", "--shell", "/bin/bash", PERSON, check=False)
    variables = {"launch_users": [PERSON]}
    try:
        result = play("site.yml", tags=ROAD, extravars=variables)
        assert result.rc == 0, result.stdout
        # What a launch user has of her login of now is there from the next boot on, where she is not logged in.
        yield variables
    finally:
        play("playbooks/pytorch.yml", tags="launch_users")
        for name in NODES:
            node(name).inside("userdel", "--remove", PERSON, check=False)


def looks(result: Result) -> list[dict[str, Any]]:
    """What each look answered, in their order."""
    events = [event["event_data"] for event in result.events if event["event"] == "runner_on_ok"]
    return [data["res"] for data in events if data["task_action"] == "role_looks"]


def roles_that_came(result: Result) -> set[str]:
    ran = ("runner_on_ok", "runner_on_failed")
    return {event["event_data"].get("role") for event in result.events if event["event"] in ran} & ROLES


def test_where_nothing_differs_no_role_comes_and_each_node_is_asked_once(play: Play, finished: dict[str, Any]) -> None:
    for check in (True, False):
        result = play("site.yml", tags=ROAD, extravars=finished, check=check)
        assert (result.rc, result.changed) == (0, []), result.stdout
        assert roles_that_came(result) == set()
        assert [look["looked_at"] for look in looks(result)] == [[], [], []], "inspect has looked for them"
        assert [look["why"] for look in looks(result)] == [{}, {}, {}]


def test_a_full_run_agrees(play: Play, finished: dict[str, Any]) -> None:
    result = play("site.yml", tags=ROAD, extravars={**finished, "full": "true"})
    assert (result.rc, result.changed) == (0, []), result.stdout
    assert roles_that_came(result) == ROLES
    tried = result.results("Test logins on the peers")
    assert {name: sorted(one["tried"]) for name, one in tried.items()} == {
        name: sorted({*NODES} - {name}) for name in NODES
    }


def missed(play: Play, finished: dict[str, Any], faults: list[Fault]) -> list[str]:
    """The faults that the look does not see, or for another reason than its own; each is on while nothing else is."""
    shapes = [fault.shape() for fault in faults]
    # What joins nodes is looked at on all of them.
    limit = None if any(fault.step == "network" for fault in faults) else NODE
    result = play(BOOK, extravars={**finished, "faults": shapes}, check=True, limit=limit)
    assert result.rc == 0, result.stdout
    answers = [answer["why"] for answer in looks(result)]
    assert len(answers) == len(faults)
    said = [why.get(fault.role, {}).get(NODE, []) for fault, why in zip(faults, answers, strict=True)]
    return [
        f"{fault.what}: {why}"
        for fault, why, sentences in zip(faults, answers, said, strict=True)
        if not any(fault.says in sentence for sentence in sentences)
    ]


@pytest.fixture
def taken_back(play: Play, finished: dict[str, Any]) -> Iterator[None]:
    """Every fault was alone on the node: afterwards no role has anything to do there."""
    yield
    result = play("site.yml", tags=ROAD, extravars={**finished, "full": True})
    assert (result.rc, result.changed) == (0, []), f"{[look['why'] for look in looks(result)]}\n{result.stdout}"


@pytest.mark.usefixtures("taken_back")
def test_something_of_each_role_is_found(play: Play, finished: dict[str, Any]) -> None:
    first = {fault.role: fault for faults_of in SWEEPS for fault in reversed(faults_of())}
    assert first.keys() == ROLES | {"installed_record"}
    assert missed(play, finished, [*first.values()]) == []


@pytest.mark.slow
@pytest.mark.usefixtures("taken_back")
@pytest.mark.parametrize("faults_of", SWEEPS)
def test_everything_that_a_role_manages_is_found(
    play: Play, finished: dict[str, Any], faults_of: Callable[[], list[Fault]]
) -> None:
    assert missed(play, finished, faults_of()) == []


def test_a_node_that_a_step_changes_is_looked_at_again_and_alone(
    play: Play, node: Callable[[str], Machine], finished: dict[str, Any]
) -> None:
    node(NODE).inside("rm", "/etc/needrestart/conf.d/90-muster.conf")
    result = play("site.yml", tags="baseline,network", extravars=finished)
    assert result.rc == 0, result.stdout
    assert {one.partition(":")[0] for one in result.changed} == {NODE}
    assert [look["looked_at"] for look in looks(result)] == [list(NODES), [NODE]]
    assert roles_that_came(result) == {"node_baseline"}


def test_where_only_the_record_is_old_no_role_comes_and_it_is_written_anew(
    play: Play, node: Callable[[str], Machine], finished: dict[str, Any]
) -> None:
    path = "/var/lib/muster/installed.json"
    before = json.loads(node(NODE).inside("cat", path).stdout)
    node(NODE).inside("rm", path)
    result = play("site.yml", tags="pytorch", extravars=finished)
    assert (result.rc, result.changed) == (0, []), result.stdout
    assert roles_that_came(result) & {"pytorch", "launch_users"} == set()
    assert result.results("Record the installed state for drift")[NODE]["written"] == [NODE]
    after = json.loads(node(NODE).inside("cat", path).stdout)
    # When it was booted is reckoned from two clocks, and differs in its last places.
    passing = {"at": 0, "run": "", "booted": 0}
    assert {**after, **passing} == {**before, **passing}


def test_with_gpus_the_environment_is_looked_at_behind_their_stack(play: Play, finished: dict[str, Any]) -> None:
    variables = {**finished, "cluster_gpus": 1, "pytorch_variant": "cpu"}
    result = play("site.yml", tags="baseline,pytorch", extravars=variables, check=True)
    assert [look["looked_at"] for look in looks(result)] == [list(NODES), list(NODES)]
    assert roles_that_came(result) == {"pytorch"}
    # What the look runs into, the role says in its own words.
    assert "pytorch_variant is cpu, and cluster_gpus is 1" in result.stdout


def test_a_step_alone_looks_for_itself(play: Play, node: Callable[[str], Machine], finished: dict[str, Any]) -> None:
    node(NODE).inside("sed", "-i", "/node2/d", "/etc/hosts")
    result = play("playbooks/network.yml", extravars=finished)
    assert result.rc == 0, result.stdout
    (look,) = looks(result)
    assert look["needed"]["cluster_hosts"] == [NODE]
    assert NODE in look["why"]["cluster_hosts"]
    assert "node2" in node(NODE).inside("cat", "/etc/hosts").stdout
