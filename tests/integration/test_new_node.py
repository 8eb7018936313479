"""A node is added to the inventory and configured by site.yml during a launch on other nodes.

Another node is down. The dead node blocks neither the run on the remaining nodes nor the launch on two of them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
import yaml

from conftest import UP_TO_NETWORK
from drill import Drill, processes
from machines import NODES, find_machine
from outside import scan
from paths import INVENTORY
from snapshot import differences, take
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine, Play

pytestmark = pytest.mark.moment

NEW, DEAD = "node4", "node3"
AT_WORK = ("node1", "node2")
MASTER_PORT = 29500
LISTED = INVENTORY / "hosts_more.yml"
# Names, keys and the firewall. Nothing else of an existing node may change.
MAY_CHANGE = (
    "/etc/hosts",
    "/etc/ufw/",
    "/home/muster/.ssh/",
    "/var/lib/muster/ssh/muster/proved.json",  # verified logins, including the new node
    "/var/lib/muster/launches/",  # written by the launch itself
    "firewall",
)


class Story:
    """The runs, and the state of the launch's nodes before and after."""

    def __init__(self, play: Play, drill: Drill) -> None:
        self.nodes = [find_machine(name) for name in AT_WORK]
        self.ready = play("site.yml", tags=f"{UP_TO_NETWORK},pytorch")
        self.plan = ranks(play)
        self.drill = drill.begin().in_step(2)
        self.add_node(play)
        self.before = [take(machine) for machine in self.nodes]
        self.at_work = processes(self.drill.launch_id)
        self.step = self.steps()
        find_machine(DEAD).podman("stop", "--time=0")
        self.added = play("site.yml", tags=UP_TO_NETWORK)
        self.after = [take(machine) for machine in self.nodes]
        self.still_at_work = processes(self.drill.launch_id)
        self.later_step = self.steps()
        self.later_plan = ranks(play)

    def add_node(self, play: Play) -> None:
        """Add the new node to the inventory and start its machine."""
        listed = yaml.safe_load(LISTED.read_text())
        listed["gpu_nodes"]["hosts"][NEW] = {"ansible_host": "{{ sandbox_prefix }}.14"}
        LISTED.write_text(yaml.safe_dump(listed))
        result = play("playbooks/sandbox_up.yml")
        assert result.rc == 0, result.stdout

    def steps(self) -> int:
        """Return the number of steps of the slowest rank."""
        logs = self.drill.run.glob("logs/*/rank*.stdout.log")
        return min(log.read_text().count("\n") for log in logs)


def ranks(play: Play) -> dict[str, list[int]]:
    """Return the ranks of each node in a launch on all nodes."""
    result = play("playbooks/plan.yml")
    plan = result.results("Launch the acceptance test")[NODES[0]]["plan"]
    return {entry["node"]: entry["ranks"] for entry in plan["nodes"]}


@pytest.fixture(scope="module")
def story(play: Play, turn: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    listed, dead = LISTED.read_text(), find_machine(DEAD)
    variables = {"cluster_launch_nodes": list(AT_WORK), "cluster_nproc_per_node": 1}
    drill = Drill(tmp_path_factory.mktemp("launch"), variables)
    head = find_machine(AT_WORK[0])
    try:
        yield Story(play, drill)
    finally:
        drill.open_gate(head)
        LISTED.write_text(listed)
        replace(dead, container=dead.container.replace(DEAD, NEW)).podman("rm", "--force", "--time=0", "--ignore")
        dead.podman("start")
        until(dead.ssh_answers, PATIENCE, f"{DEAD} is back")
        head.inside("rm", drill.gate)


def log_in(machine: Machine, name: str) -> str:
    command = f"ssh -oBatchMode=yes -oConnectTimeout=5 {name} hostname"
    return machine.inside("runuser", "-l", "muster", "-c", command, check=False).stdout.strip()


def test_dead_node_is_reported_and_other_nodes_are_completed(story: Story) -> None:
    assert story.ready.rc == 0, story.ready.stdout
    assert story.added.rc != 0
    assert story.added.stats["dark"] == {DEAD: 1}, story.added.stdout
    assert story.added.stats["failures"] == {}
    judged = story.added.results("Evaluate the inspection")["localhost"]
    assert f"{DEAD}: the node was not inspected" in judged["msg"]
    warned = story.added.results("Authorize logins between the nodes")[NEW]["warnings"]
    assert any(f"{DEAD} was not part of this run" in text for text in warned)
    for name in (*AT_WORK, NEW):
        assert "Apply the firewall rules" in [
            event["event_data"]["task"]
            for event in story.added.events
            if event["event"] == "runner_on_ok" and event["event_data"]["host"] == name
        ]


def test_new_node_joins_the_cluster(story: Story) -> None:
    living = [*story.nodes, find_machine(NEW)]
    for machine, peer in permutations(living, 2):
        assert log_in(machine, peer.name) == peer.name, f"{machine.name} -> {peer.name}"
    # The launch listens on this port, so a drop proves a firewall rule.
    head = living[0].address
    assert scan(living[-1], head, MASTER_PORT).open == [MASTER_PORT]
    assert scan(find_machine("outsider"), head, MASTER_PORT).open == []


def test_only_names_keys_and_firewall_change_on_other_nodes(story: Story) -> None:
    for machine, before, after in zip(story.nodes, story.before, story.after, strict=True):
        assert story.added.changing_roles(machine.name) == {"cluster_hosts", "ssh_mesh", "firewall"}
        same = {subject for subject in {*before, *after} if not subject.startswith(MAY_CHANGE)}
        assert differences(*({subject: state.get(subject, "") for subject in same} for state in (before, after))) == []


def test_existing_ranks_are_unchanged(story: Story) -> None:
    assert story.plan == {"node1": [0], "node2": [1], DEAD: [2]}
    assert story.later_plan == {**story.plan, NEW: [3]}


def test_launch_continues_and_finishes(story: Story) -> None:
    assert story.still_at_work.keys() == story.at_work.keys()
    assert story.later_step > story.step
    story.drill.open_gate(story.nodes[0])
    verdict = story.drill.end()
    assert verdict["status"] == "healthy", verdict
    planned = json.loads((story.drill.run / "plan.json").read_text())
    assert {entry["node"]: entry["ranks"] for entry in planned["nodes"]} == {"node1": [0], "node2": [1]}
    for rank, name in enumerate(AT_WORK):
        steps = (story.drill.run / f"logs/{name}/rank{rank}.stdout.log").read_text().splitlines()
        assert steps == [f"step {step}" for step in range(len(steps))]
        assert len(steps) >= story.later_step
