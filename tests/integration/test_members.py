"""Membership: quarantine and release, and the retirement of a dead node.

The third node has a separate inventory file, which the tests change as a user does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from conftest import UP_TO_NETWORK
from killable import Run, moments
from machines import NODES, find_machine
from outside import listeners, scan
from paths import INVENTORY, ROOT, SANDBOX
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

LISTED = INVENTORY / "hosts_more.yml"
NODE, PEERS = "node3", ("node1", "node2")
REASON = {"node": NODE, "reason": "a fan does not turn"}
COPY = "/var/lib/muster/quarantine.json"
SCRIPT = {"launch_script_src": str(ROOT / "tests/integration/payloads/steps.py"), "cluster_nproc_per_node": 1}
PINNED = SANDBOX / "known_hosts"


@pytest.fixture(scope="module")
def pinned() -> str:
    return PINNED.read_text()


@pytest.fixture(scope="module")
def lab(networked: list[Machine], pinned: str) -> Iterator[Machine]:
    """Yield the third node, and restore its inventory entry afterwards."""
    listed = LISTED.read_text()
    LISTED.write_text(f"# All beyond the second.\n{listed}")
    third = next(machine for machine in networked if machine.name == NODE)
    yield third
    LISTED.write_text(listed)
    PINNED.write_text(pinned)
    third.podman("start")
    until(third.ssh_answers, PATIENCE, f"{NODE} is back")
    third.inside("rm", "-f", COPY)


def ranks(play: Play) -> dict[str, list[int]]:
    """Return the ranks of each node in a launch on all nodes."""
    result = play("playbooks/plan.yml")
    plan = result.results("Launch the acceptance test")[NODES[0]]["plan"]
    return {entry["node"]: entry["ranks"] for entry in plan["nodes"]}


@pytest.fixture(scope="module")
def stale(lab: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an older copy of the inventory."""
    folder = tmp_path_factory.mktemp("stale")
    for name in ("hosts.yml", "group_vars"):
        (folder / name).symlink_to((INVENTORY / name).resolve())
    (folder / LISTED.name).write_text(LISTED.read_text())
    return folder


@pytest.fixture(scope="module")
def quarantined(play: Play, lab: Machine, stale: Path) -> Result:
    before = LISTED.read_text()
    checked = play("playbooks/quarantine.yml", extravars=REASON, check=True)
    assert checked.rc == 0, checked.stdout
    assert LISTED.read_text() == before
    assert "+        reason: a fan does not turn" in checked.stdout
    assert lab.inside("test", "-e", COPY, check=False).returncode == 1
    done = play("playbooks/quarantine.yml", extravars=REASON)
    assert done.rc == 0, done.stdout
    return done


def test_quarantine_without_reason_or_node_is_refused(play: Play, lab: Machine) -> None:
    before = LISTED.read_text()
    refused = play("playbooks/quarantine.yml", extravars={"node": "node9"})
    assert refused.rc != 0
    assert "node9 is not in gpu_nodes" in refused.stdout
    assert "No reason was given" in refused.stdout
    assert LISTED.read_text() == before


def test_quarantined_node_has_no_rank(play: Play, lab: Machine, quarantined: Result) -> None:
    outcome = quarantined.results("Quarantine the nodes")["node1"]["outcome"]
    assert outcome.startswith(f"{NODE} is quarantined since ")
    assert outcome.endswith(": a fan does not turn; 2 nodes take part, by node rank: 0 node1, 1 node2")
    text = LISTED.read_text()
    assert text.startswith("# All beyond the second.\n")
    assert "        reason: a fan does not turn\n" in text
    assert ranks(play) == {"node1": [0], "node2": [1]}
    kept = json.loads(lab.inside("cat", COPY).stdout)
    assert kept["reason"] == "a fan does not turn"
    again = play("playbooks/quarantine.yml", extravars=REASON)
    assert again.changed == []
    assert LISTED.read_text() == text


def test_launch_with_an_older_inventory_is_refused(play: Play, quarantined: Result, stale: Path) -> None:
    launched = play("playbooks/launch.yml", extravars=SCRIPT, inventory=stale)
    assert launched.rc != 0
    said = launched.results("Run torchrun on all participating nodes")["node1"]["msg"]
    assert f"{NODE}: is quarantined since" in said
    assert "a fan does not turn, but the inventory in use does not contain the quarantine" in said
    assert f"ansible-playbook playbooks/release.yml -e node={NODE}" in said
    assert "launch.quarantined" in {
        one["id"] for one in launched.results("Run torchrun on all participating nodes")["node1"]["verdict"]["findings"]
    }


def test_released_node_takes_part_again(play: Play, lab: Machine, quarantined: Result, stale: Path) -> None:
    before = (stale / LISTED.name).read_text()
    released = play("playbooks/release.yml", extravars={"node": NODE})
    assert released.rc == 0, released.stdout
    outcome = released.results("Lift the quarantine of the nodes")["node1"]["outcome"]
    assert outcome.startswith(f"{NODE} takes part in launches again; 3 nodes take part")
    assert LISTED.read_text() == before
    assert lab.inside("test", "-e", COPY, check=False).returncode == 1
    assert ranks(play) == {"node1": [0], "node2": [1], NODE: [2]}
    assert play("playbooks/release.yml", extravars={"node": NODE}).changed == []


# ---------------------------------------------------------------- automatic quarantine


def fault(node: str, status: str = "fail") -> dict[str, str]:
    return {"id": "gpu.lost", "status": status, "node": node, "summary": "GPU 4 does not answer"}


def quarantine_automatically(play: Play, *findings: dict[str, str]) -> dict[str, Any]:
    done = play(str(ROOT / "tests/integration/payloads/health_quarantine.yml"), extravars={"findings": list(findings)})
    assert done.rc == 0, done.stdout
    return done.results("Quarantine a node with a hard fault")["node1"]


def test_automatic_quarantine_is_limited_to_one_node(play: Play, lab: Machine, quarantined: Result) -> None:
    assert play("playbooks/release.yml", extravars={"node": NODE}).rc == 0
    before = LISTED.read_text()
    assert quarantine_automatically(play, fault(NODE, "unknown"), fault(NODE, "warn"))["quarantined"] == ""
    assert LISTED.read_text() == before
    found = quarantine_automatically(play, fault(NODE))
    assert found["quarantined"] == NODE
    assert "automatic: true" in LISTED.read_text()
    assert ranks(play) == {"node1": [0], "node2": [1]}
    assert json.loads(lab.inside("cat", COPY).stdout)["reason"].startswith("gpu.lost: GPU 4 does not answer")
    second = quarantine_automatically(play, fault("node2"))
    assert second["quarantined"] == ""
    assert f"{NODE} is quarantined since" in second["warnings"][0]
    assert play("playbooks/quarantine.yml", extravars=REASON).rc == 0
    assert "automatic" not in LISTED.read_text()
    assert play("playbooks/release.yml", extravars={"node": NODE}).rc == 0
    assert LISTED.read_text() == before


# ---------------------------------------------------------------- retirement of a dead node


def knows(machine: Machine) -> list[str]:
    """Return the files in which this node still lists the third node."""
    places = {
        "/etc/hosts": NODE,
        "/home/muster/.ssh/authorized_keys": r"\.13\"",
        "/home/muster/.ssh/muster_known_hosts": NODE,
        "/home/muster/.ssh/config": NODE,
        "/etc/ufw/user.rules": r"\.13 ",
    }
    return [path for path, name in places.items() if machine.inside("grep", name, path, check=False).returncode == 0]


def retire(folder: Path, *more: str) -> Run:
    return Run(
        folder,
        "-i",
        str(LISTED),
        "playbooks/retire.yml",
        "-e",
        f"node={NODE}",
        "-e",
        f"trust_known_hosts={PINNED}",
        *more,
    )


@pytest.mark.slow
def test_killed_retirement_is_completed_by_the_next_run(play: Play, lab: Machine, tmp_path: Path, pinned: str) -> None:
    listed = LISTED.read_text()

    def back() -> None:
        LISTED.write_text(listed)
        PINNED.write_text(pinned)
        result = play("site.yml", tags=UP_TO_NETWORK)
        assert result.rc == 0, result.stdout
        assert knows(find_machine("node2"))

    whole = retire(tmp_path).end()
    assert whole.rc == 0, whole.shown
    try:
        for moment in moments(5, whole.seconds):
            back()
            run = retire(tmp_path)
            run.over_within(moment)
            run.kill()
            assert all(find_machine(name).ssh_answers() for name in NODES), run.task
            again = retire(tmp_path).end()
            assert again.rc == 0, f"{run.task}: {again.shown}"
            assert {name: knows(find_machine(name)) for name in PEERS} == {name: [] for name in PEERS}, run.task
            assert NODE not in LISTED.read_text()
            assert retire(tmp_path).end().changed == 0, run.task
    finally:
        back()


@pytest.fixture(scope="module")
def retired(lab: Machine, tmp_path_factory: pytest.TempPathFactory, pinned: str) -> Run:
    """Retire a dead node. The first run is killed once the inventory is changed, and a second run finishes."""
    folder = tmp_path_factory.mktemp("retire")
    PINNED.write_text("".join(f"{line} muster:node{line.split()[0][-1]}\n" for line in pinned.splitlines()))
    lab.podman("stop", "--time=0")
    checked = retire(folder, "--check", "--diff").end()
    assert checked.rc == 0, checked.shown
    assert NODE in LISTED.read_text()
    for line in (f"-    {NODE}:", f"-{lab.address} {NODE}"):
        assert line in checked.shown, checked.shown
    cut_off = retire(folder)
    until(lambda: NODE not in LISTED.read_text() or cut_off.over_within(0), 300, "the node is unlisted")
    cut_off.kill()
    assert NODE not in LISTED.read_text()
    assert knows(find_machine("node2")), "the run was killed too late for this test"
    return retire(folder).end()


@pytest.mark.slow
def test_other_nodes_forget_the_node_after_a_killed_run(retired: Run, lab: Machine) -> None:
    assert retired.rc == 0, retired.shown
    for name in PEERS:
        assert knows(find_machine(name)) == []
        assert find_machine(name).ssh_answers()
    assert f"muster:{NODE}" not in PINNED.read_text()
    assert LISTED.read_text().startswith("# All beyond the second.\n")
    assert "2 nodes take part, by node rank: 0 node1, 1 node2" in retired.shown


@pytest.mark.slow
def test_retired_node_is_blocked_by_the_firewall(retired: Run, lab: Machine) -> None:
    lab.podman("start")
    until(lambda: lab.inside("true", check=False).returncode == 0, PATIENCE, f"{NODE} is back")
    head = find_machine("node1")
    with listeners(head, [29500]):
        assert scan(find_machine("node2"), head.address, 29500).open == [29500]
        assert scan(lab, head.address, 29500).open == []


@pytest.mark.slow
def test_second_retirement_changes_nothing(retired: Run, tmp_path: Path) -> None:
    again = retire(tmp_path).end()
    assert again.rc == 0, again.shown
    assert again.changed == 0
    assert f"{NODE} is not in the inventory or in other nodes' files" in again.shown


@pytest.mark.slow
def test_returning_node_is_accepted_again(retired: Run, play: Play, stale: Path, pinned: str) -> None:
    LISTED.write_text((stale / LISTED.name).read_text())
    PINNED.write_text(pinned)
    back = play("site.yml", tags=UP_TO_NETWORK)
    assert back.rc == 0, back.stdout
    assert len(knows(find_machine("node1"))) >= 4
