"""In a second run, one check per node finds every difference. If nothing differs, no role runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from faults import PERSON, Fault, of_baseline, of_network, of_people, of_pytorch
from launch_users import forget_launch_users
from machines import NODES
from snapshot import take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play, Result

STEPS = "inspect,baseline,network,gpu_stack,pytorch"
ROLES = {"node_baseline", "cluster_hosts", "ssh_mesh", "firewall", "pytorch", "launch_users"}
BOOK = "tests/integration/payloads/one_fault_each.yml"
NODE = "node1"
SWEEPS = (of_baseline, of_network, of_pytorch, of_people)


@pytest.fixture(scope="module")
def finished(play: Play, node: Callable[[str], Machine]) -> Iterator[dict[str, Any]]:
    """Run all steps before the launch, with a launch user. Return the variables of these runs."""
    for name in NODES:
        forget_launch_users(node(name))
        node(name).inside("useradd", "--create-home", "--shell", "/bin/bash", PERSON, check=False)
    variables = {"launch_users": [PERSON]}
    try:
        result = play("site.yml", tags=STEPS, extravars=variables)
        assert result.rc == 0, result.stdout
        # While a launch user is logged out, the settings of her login apply from the next boot on.
        yield variables
    finally:
        play("playbooks/pytorch.yml", tags="launch_users")
        for name in NODES:
            node(name).inside("userdel", "--remove", PERSON, check=False)


def looks(result: Result) -> list[dict[str, Any]]:
    """Return the results of all checks in order."""
    events = [event["event_data"] for event in result.events if event["event"] == "runner_on_ok"]
    return [data["res"] for data in events if data["task_action"] == "role_looks"]


def executed_roles(result: Result) -> set[str]:
    ran = ("runner_on_ok", "runner_on_failed")
    return {event["event_data"].get("role") for event in result.events if event["event"] in ran} & ROLES


def test_unchanged_nodes_run_no_role_and_are_checked_once(play: Play, finished: dict[str, Any]) -> None:
    for check in (True, False):
        result = play("site.yml", tags=STEPS, extravars=finished, check=check)
        assert (result.rc, result.changed) == (0, []), result.stdout
        assert executed_roles(result) == set()
        assert [look["looked_at"] for look in looks(result)] == [[], [], []], "inspect has checked for all steps"
        assert [look["why"] for look in looks(result)] == [{}, {}, {}]


def test_full_run_finds_no_difference(play: Play, finished: dict[str, Any]) -> None:
    result = play("site.yml", tags=STEPS, extravars={**finished, "full": "true"})
    assert (result.rc, result.changed) == (0, []), result.stdout
    assert executed_roles(result) == ROLES
    tried = result.results("Test logins on the peers")
    assert {name: sorted(one["tried"]) for name, one in tried.items()} == {
        name: sorted({*NODES} - {name}) for name in NODES
    }


def missed(play: Play, finished: dict[str, Any], faults: list[Fault]) -> list[str]:
    """Inject the faults one at a time. Return those that the check misses or reports for a different reason."""
    shapes = [fault.shape() for fault in faults]
    # Settings that connect nodes are checked on all nodes.
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
def reverted(play: Play, finished: dict[str, Any]) -> Iterator[None]:
    """Check that no role has anything to do after the faults were reverted."""
    yield
    result = play("site.yml", tags=STEPS, extravars={**finished, "full": True})
    assert (result.rc, result.changed) == (0, []), f"{[look['why'] for look in looks(result)]}\n{result.stdout}"


@pytest.mark.usefixtures("reverted")
def test_one_fault_per_role_is_found(play: Play, finished: dict[str, Any]) -> None:
    first = {fault.role: fault for faults_of in SWEEPS for fault in reversed(faults_of())}
    assert first.keys() == ROLES | {"installed_record"}
    assert missed(play, finished, [*first.values()]) == []


@pytest.mark.slow
@pytest.mark.usefixtures("reverted")
@pytest.mark.parametrize("faults_of", SWEEPS)
def test_every_fault_is_found(play: Play, finished: dict[str, Any], faults_of: Callable[[], list[Fault]]) -> None:
    assert missed(play, finished, faults_of()) == []


def test_only_changed_nodes_are_rechecked(play: Play, node: Callable[[str], Machine], finished: dict[str, Any]) -> None:
    node(NODE).inside("rm", "/etc/needrestart/conf.d/90-muster.conf")
    result = play("site.yml", tags="baseline,network", extravars=finished)
    assert result.rc == 0, result.stdout
    assert {one.partition(":")[0] for one in result.changed} == {NODE}
    assert [look["looked_at"] for look in looks(result)] == [list(NODES), [NODE]]
    assert executed_roles(result) == {"node_baseline"}


def test_old_record_is_rewritten_without_running_a_role(
    play: Play, node: Callable[[str], Machine], finished: dict[str, Any]
) -> None:
    path = "/var/lib/muster/installed.json"
    before = json.loads(node(NODE).inside("cat", path).stdout)
    node(NODE).inside("rm", path)
    result = play("site.yml", tags="pytorch", extravars=finished)
    assert (result.rc, result.changed) == (0, []), result.stdout
    assert executed_roles(result) & {"pytorch", "launch_users"} == set()
    assert result.results("Record the installed state for drift")[NODE]["written"] == [NODE]
    after = json.loads(node(NODE).inside("cat", path).stdout)
    # The boot time is calculated from two clocks and varies slightly.
    passing = {"at": 0, "run": "", "booted": 0}
    assert {**after, **passing} == {**before, **passing}


def test_environment_is_checked_after_the_gpu_stack(play: Play, finished: dict[str, Any]) -> None:
    variables = {**finished, "cluster_gpus": 1, "pytorch_variant": "cpu"}
    result = play("site.yml", tags="baseline,pytorch", extravars=variables, check=True)
    assert [look["looked_at"] for look in looks(result)] == [list(NODES), list(NODES)]
    assert executed_roles(result) == {"pytorch"}
    # The role reports errors of the check.
    assert "pytorch_variant is cpu, but cluster_gpus is 1" in result.stdout


def test_single_step_runs_its_own_check(play: Play, node: Callable[[str], Machine], finished: dict[str, Any]) -> None:
    node(NODE).inside("sed", "-i", "/node2/d", "/etc/hosts")
    result = play("playbooks/network.yml", extravars=finished)
    assert result.rc == 0, result.stdout
    (look,) = looks(result)
    assert look["needed"]["cluster_hosts"] == [NODE]
    assert NODE in look["why"]["cluster_hosts"]
    assert "node2" in node(NODE).inside("cat", "/etc/hosts").stdout


def test_verify_mode_writes_nothing_to_nodes(
    play: Play, node: Callable[[str], Machine], finished: dict[str, Any]
) -> None:
    """On finished nodes the run succeeds; on a damaged node it fails. In both cases no file of a node changes."""
    claims = "ls -lR --full-time /run/muster; journalctl -t muster --no-pager | wc -l"
    for damage, rc in (("true", 0), ("sed -i '/ node1$/d' /etc/hosts", 2)):
        node("node2").inside("sh", "-ec", damage)
        before = {name: (take(node(name)), node(name).inside("sh", "-c", claims).stdout) for name in NODES}
        result = play("site.yml", extravars={**finished, "cluster_mode": "verify"})
        assert (result.rc, result.changed) == (rc, []), result.stdout
        assert ("The acceptance test is skipped" in result.stdout) == (rc == 0), result.stdout
        after = {name: (take(node(name)), node(name).inside("sh", "-c", claims).stdout) for name in NODES}
        assert after == before
    assert play("site.yml", tags="network", extravars=finished).rc == 0
