"""Drift on two nodes is found with user and time. After a repair, no drift is reported."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from drift_faults import FAULTS, RIGHTS, Fault
from machines import NODES
from paths import ARTIFACTS, BIN, ENVIRONMENT, INVENTORY, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play

pytestmark = pytest.mark.slow
PUT_BACK = "sudo gpasswd --delete muster sudo"
# The recorded time is that of the command. Two clock readings may differ by rounding.
SLACK = 2.0


def drift(**variables: str) -> subprocess.CompletedProcess[str]:
    """Run the drift playbook as a user does, with its own screen output."""
    argv = [str(BIN / "ansible-playbook"), "playbooks/drift.yml", "-i", str(INVENTORY), "-e", json.dumps(variables)]
    return subprocess.run(
        argv, cwd=ROOT, env={**os.environ, **ENVIRONMENT}, check=False, capture_output=True, text=True
    )


def found() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((ARTIFACTS / "latest/drift.json").read_text())
    return kept


def of(fault: Fault, differences: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the single difference of this fault."""
    fits = [
        one
        for one in differences
        if (one["node"], one["id"]) == (fault.node, fault.check) and fault.what in one["what"]
    ]
    assert len(fits) == 1, f"{fault.name}: {fits or differences}"
    return fits[0]


class Story:
    """Check for drift three times: without faults, with all faults, and with the options repair and accept."""

    def __init__(self, node: Callable[[str], Machine]) -> None:
        self.machines = {name: node(name) for name in NODES}
        self.begun = time.time()
        self.calm = drift()
        for fault in FAULTS:
            fault.put_on(self.machines[fault.node])
        self.ended = time.time()
        self.drifted = drift(json="true")
        self.seen = found()
        self.gone = [fault.name for fault in FAULTS if fault.says not in self.proof(fault)]
        self.repair = drift(repair="true", accept="true")
        self.repaired = found()
        self.still = [fault.name for fault in FAULTS if fault.repaired and fault.says in self.proof(fault)]

    def proof(self, fault: Fault) -> str:
        return self.machines[fault.node].inside("sh", "-c", fault.proof, check=False).stdout


@pytest.fixture(scope="module")
def story(play: Play, networked: list[Machine], with_pytorch: None, node: Callable[[str], Machine]) -> Iterator[Story]:
    del networked, with_pytorch
    try:
        yield Story(node)
    finally:  # other tests must not start with these faults
        node("node1").ssh(PUT_BACK, check=False)
        node("node1").ssh("sudo apt-get install --yes --allow-downgrades python3-venv=3.11.2-1+b1", check=False)
        result = play("site.yml", tags="baseline,network,pytorch")
        assert result.rc == 0, result.stdout


def test_freshly_configured_cluster_has_no_drift(story: Story) -> None:
    assert story.calm.returncode == 0, story.calm.stdout
    assert "no drift on" in story.calm.stdout


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_found_with_user_and_time(story: Story, fault: Fault) -> None:
    one = of(fault, story.seen["differences"])
    assert one["status"] == "fail"
    assert one["by"] == fault.by, one
    if fault.by:
        assert fault.how in one["how"]
    moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(story.begun - SLACK))
    assert one["since"] is not None
    assert moment <= one["since"] <= time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(story.ended + SLACK))


def test_nothing_else_is_reported(story: Story) -> None:
    about = {id(of(fault, story.seen["differences"])) for fault in FAULTS}
    rest = [one for one in story.seen["differences"] if id(one) not in about]
    # The file that was deleted for the unit fault is a separate difference.
    assert [one["what"] for one in rest] == ["/etc/systemd/logind.conf.d/90-muster.conf is missing"]


def test_drift_exits_with_2_and_changes_nothing(story: Story) -> None:
    assert story.drifted.returncode == 2
    assert story.gone == []


def test_steps_repair_their_own_drift_and_the_rest_is_accepted(story: Story) -> None:
    assert story.repair.returncode == 0, story.repair.stdout
    assert story.still == [], "repair did not change these"
    assert [one for one in story.repaired["differences"] if one["status"] == "fail"] == []
    done = "\n".join(story.repaired["repairs"])
    assert "node1: no step restores this: the package python3-venv has a different version" in done
    # All nodes know the keys of all nodes.
    for names, tag in (("node1", "baseline"), (",".join(NODES), "network"), ("node1,node2", "pytorch")):
        assert f"--tags {tag} --limit {names}\n" in f"{done}\n"


def test_new_admin_rights_are_found_while_another_node_is_down(story: Story) -> None:
    machine = story.machines["node2"]
    RIGHTS.put_on(story.machines[RIGHTS.node])
    machine.podman("stop", "--time=0")
    try:
        result = drift()
        kept = found()
    finally:
        machine.podman("start")
        story.machines[RIGHTS.node].ssh(PUT_BACK)
        until(machine.ssh_answers, PATIENCE, "the node answers again")
    verdict = json.loads((ARTIFACTS / "latest/verdict.json").read_text())
    assert ("drift.unreachable", "node2") in {(one["id"], one["node"]) for one in verdict["findings"]}
    assert result.returncode == 2
    one = of(RIGHTS, kept["differences"])
    assert (one["by"], RIGHTS.how in one["how"]) == ("admin", True)
    assert kept["nodes"]["node2"]["reached"] is False
    assert kept["nodes"]["node1"]["reached"] is True
    assert "not fully checked: " in result.stdout
