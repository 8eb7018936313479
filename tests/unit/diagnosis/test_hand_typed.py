"""Manual launches: how launchers are grouped, and the resulting case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from muster.diagnosis import hand_typed
from muster.diagnosis.case import LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.launched import Gathered
from muster.launch.plan import NodeSpec
from sparse import SHOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster.diagnosis.evidence import Agent

SPECS = {f"node{place}": NodeSpec(f"node{place}", f"192.0.2.{place}", "torchrun", "eth0") for place in (1, 2, 3)}


def agent(place: int, ranks: Sequence[int] = (), state: str = "S", **more: Any) -> Agent:
    argv = ["/usr/bin/python3", "/opt/bin/torchrun", "--nnodes=2", f"--node_rank={place}", "--nproc-per-node", "2"]
    argv += ["--master_addr", "192.0.2.1", "--master-port=29600", "train.py", "--node-rank=9"]
    found: dict[str, Any] = {
        "pid": 100 + place,
        "user": "ada",
        "argv": argv,
        "cwd": "/srv",
        "started": 1000.0 + place,
        "state": "S",
        "environment": {},
        "ranks": [{**SHOT, "rank": rank, "local_rank": rank % 2, "state": state} for rank in ranks],
        "unit": "session-1.scope",
        **more,
    }
    return cast("Agent", found)


def test_launch_parameters_are_read_from_command_lines() -> None:
    typed = hand_typed.one_launch({"node2": [agent(1, (2, 3), "T")], "node1": [agent(0, (0, 1))]}, "ada")
    assert [one.node for one in typed] == ["node1", "node2"]
    case = LaunchCase(hand_typed.case_shape(typed, SPECS, Gathered()))
    launch = case.launch
    assert (launch["how"], launch["live"], launch["world_size"]) == ("foreign", True, 4)
    assert (launch["master_addr"], launch["master_port"]) == ("192.0.2.1", 29600)
    assert [one["ranks"] for one in launch["nodes"]] == [[0, 1], [2, 3]]
    said = {(one.cause.id, one.place.node, one.place.rank) for one in decide(case, CAUSES).causes}
    assert ("process.stopped", "node2", 2) in said


def test_ranks_that_have_not_started_yet_are_counted() -> None:
    typed = hand_typed.one_launch({"node1": [agent(0)], "node2": [agent(1)]}, "ada")
    shape = hand_typed.case_shape(typed, SPECS, Gathered())
    assert [one["rank"] for one in shape["ranks"]] == [0, 1, 2, 3]


def test_other_launches_are_excluded() -> None:
    """Launches by Muster, launches of other users, and older hanging launches are excluded."""
    of_muster = agent(0, unit="muster-launch-20260101-120000-abcd.service")
    agents = {
        "node1": [agent(0, started=10.0), agent(0), of_muster],
        "node2": [agent(1), agent(0, user="bob")],
        "node3": [agent(1, started=10.0)],
    }
    assert [(one.node, one.agent["started"]) for one in hand_typed.one_launch(agents, "ada")] == [
        ("node1", 1000.0),
        ("node2", 1001.0),
    ]
    assert hand_typed.of_muster(agents) == {"20260101-120000-abcd": ["node1"]}
    assert hand_typed.one_launch({"node1": [of_muster]}, "ada") == []


def test_head_node_is_the_node_that_most_launchers_name() -> None:
    odd = agent(1)
    odd["argv"] = ["torchrun", "--nnodes=3", "--node-rank=2", "--rdzv-endpoint=[2001:db8::1]:29601", "train.py"]
    typed = hand_typed.one_launch({"node1": [agent(0)], "node2": [agent(1)], "node3": [odd]}, "ada")
    assert hand_typed.most(one.head for one in typed) == ("192.0.2.1", 29600)
    assert typed[-1].head == ("2001:db8::1", 29601)


# ---------------------------------------------------------------- choice if no launch is given

FIRST, SECOND = "20260101-120000-abcd", "20260101-130000-abcd"
DIAGNOSE = "ansible-playbook playbooks/diagnose.yml -e"


def of_muster(launch_id: str) -> Agent:
    return agent(0, user="muster", unit=f"muster-launch-{launch_id}.service")


def choose(agents: dict[str, list[Agent]], here: Sequence[str] = (), wanted: str = "", *, last: bool = True) -> Any:
    return hand_typed.choose(agents, here, {"muster", "ada"}, wanted, has_last=last)


def test_muster_launch_takes_precedence_over_other_processes() -> None:
    """Any user who can log in to the nodes can start more torchrun processes than the launch has."""
    agents = {"node1": [agent(0, user="eve"), of_muster(FIRST)], "node2": [agent(1, user="eve")]}
    said = f"Also running: torchrun of eve on node1, node2: {DIAGNOSE} account=eve"
    assert choose(agents) == hand_typed.Choice(launch=FIRST, remark=said)


def test_training_account_of_the_cluster_takes_precedence() -> None:
    agents = {"node1": [agent(0, user="eve"), agent(0)], "node2": [agent(1, user="eve")]}
    found = choose(agents)
    assert found.user == "ada"
    assert "torchrun of eve on node1, node2" in found.remark


def test_another_account_is_used_if_it_is_the_only_one_or_requested() -> None:
    agents = {"node1": [agent(0, user="eve")]}
    found = choose(agents)
    assert (found.launch, found.user, found.ask) == ("", "", "")
    assert found.remark == f"Running: torchrun of eve on node1: {DIAGNOSE} account=eve"
    assert choose(agents, last=False) == choose(agents, wanted="eve") == hand_typed.Choice(user="eve")
    assert choose(agents, wanted="bob") == hand_typed.Choice(ask="bob runs no torchrun on any node.")


def test_several_launches_require_a_choice() -> None:
    agents = {"node1": [of_muster(FIRST)], "node2": [of_muster(SECOND)]}
    assert choose(agents, [SECOND]).launch == SECOND
    assert choose(agents) == hand_typed.Choice(
        ask=f"Several launches are running. Running: launch {FIRST} on node1: {DIAGNOSE} launch={FIRST};"
        f" launch {SECOND} on node2: {DIAGNOSE} launch={SECOND}"
    )
    assert "torchrun of muster on node2" in choose({"node1": [agent(0)], "node2": [agent(1, user="muster")]}).ask
    assert choose({}) == hand_typed.Choice()


@pytest.mark.parametrize("name", ["-eve", "e ve", "eve;id", "{{ 1 }}", "eve\x1b[2J"])
def test_unusual_account_name_does_not_appear_in_commands(name: str) -> None:
    found = choose({"node1": [agent(0, user=name)]})
    assert found.remark == "Running: torchrun of an account with unusual characters in its name on node1"


@pytest.mark.parametrize(
    "unit",
    ["muster-launch-../../../x.service", "muster-launch-x.service", f"muster-launch-{FIRST}.service/../x", FIRST],
)
def test_unit_without_a_valid_id_is_not_a_muster_launch(unit: str) -> None:
    """The id is used as the folder name of the diagnosis."""
    assert hand_typed.of_muster({"node1": [agent(0, unit=unit)]}) == {}
