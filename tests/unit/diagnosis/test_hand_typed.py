"""Launches that somebody typed by hand: which launchers belong together, and what case they make."""

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


def test_what_was_typed_is_the_launch() -> None:
    typed = hand_typed.one_launch({"node2": [agent(1, (2, 3), "T")], "node1": [agent(0, (0, 1))]}, "ada")
    assert [one.node for one in typed] == ["node1", "node2"]
    case = LaunchCase(hand_typed.case_shape(typed, SPECS, Gathered()))
    launch = case.launch
    assert (launch["how"], launch["live"], launch["world_size"]) == ("foreign", True, 4)
    assert (launch["master_addr"], launch["master_port"]) == ("192.0.2.1", 29600)
    assert [one["ranks"] for one in launch["nodes"]] == [[0, 1], [2, 3]]
    said = {(one.cause.id, one.place.node, one.place.rank) for one in decide(case, CAUSES).causes}
    assert ("process.stopped", "node2", 2) in said


def test_ranks_that_have_not_begun_are_reckoned() -> None:
    typed = hand_typed.one_launch({"node1": [agent(0)], "node2": [agent(1)]}, "ada")
    shape = hand_typed.case_shape(typed, SPECS, Gathered())
    assert [one["rank"] for one in shape["ranks"]] == [0, 1, 2, 3]


def test_one_launch_is_not_another() -> None:
    """Muster's own, another user's, and one that hung there before, are left out."""
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


def test_the_head_node_is_where_most_were_told() -> None:
    odd = agent(1)
    odd["argv"] = ["torchrun", "--nnodes=3", "--node-rank=2", "--rdzv-endpoint=[2001:db8::1]:29601", "train.py"]
    typed = hand_typed.one_launch({"node1": [agent(0)], "node2": [agent(1)], "node3": [odd]}, "ada")
    assert hand_typed.most(one.head for one in typed) == ("192.0.2.1", 29600)
    assert typed[-1].head == ("2001:db8::1", 29601)


# ---------------------------------------------------------------- which one, where no launch is named

FIRST, SECOND = "20260101-120000-abcd", "20260101-130000-abcd"
DIAGNOSE = "ansible-playbook playbooks/diagnose.yml -e"


def of_muster(launch_id: str) -> Agent:
    return agent(0, user="muster", unit=f"muster-launch-{launch_id}.service")


def choose(agents: dict[str, list[Agent]], here: Sequence[str] = (), wanted: str = "", *, last: bool = True) -> Any:
    return hand_typed.choose(agents, here, {"muster", "ada"}, wanted, has_last=last)


def test_a_launch_of_musters_goes_before_any_process_of_that_name() -> None:
    """Anybody with a login on the nodes can have more of them than the launch has."""
    agents = {"node1": [agent(0, user="eve"), of_muster(FIRST)], "node2": [agent(1, user="eve")]}
    said = f"Also running: torchrun of eve on node1, node2: {DIAGNOSE} account=eve"
    assert choose(agents) == hand_typed.Choice(launch=FIRST, remark=said)


def test_an_account_of_the_cluster_goes_before_another_one() -> None:
    agents = {"node1": [agent(0, user="eve"), agent(0)], "node2": [agent(1, user="eve")]}
    found = choose(agents)
    assert found.user == "ada"
    assert "torchrun of eve on node1, node2" in found.remark


def test_another_account_is_taken_where_nothing_else_is_meant_or_where_it_is_asked_for() -> None:
    agents = {"node1": [agent(0, user="eve")]}
    found = choose(agents)
    assert (found.launch, found.user, found.ask) == ("", "", "")
    assert found.remark == f"Running: torchrun of eve on node1: {DIAGNOSE} account=eve"
    assert choose(agents, last=False) == choose(agents, wanted="eve") == hand_typed.Choice(user="eve")
    assert choose(agents, wanted="bob") == hand_typed.Choice(ask="No torchrun of bob runs on any node.")


def test_of_several_somebody_has_to_say_which() -> None:
    agents = {"node1": [of_muster(FIRST)], "node2": [of_muster(SECOND)]}
    assert choose(agents, [SECOND]).launch == SECOND
    assert choose(agents) == hand_typed.Choice(
        ask=f"Several launches are running. Running: launch {FIRST} on node1: {DIAGNOSE} launch={FIRST};"
        f" launch {SECOND} on node2: {DIAGNOSE} launch={SECOND}"
    )
    assert "torchrun of muster on node2" in choose({"node1": [agent(0)], "node2": [agent(1, user="muster")]}).ask
    assert choose({}) == hand_typed.Choice()


@pytest.mark.parametrize("name", ["-eve", "e ve", "eve;id", "{{ 1 }}", "eve\x1b[2J"])
def test_an_account_with_an_odd_name_is_in_no_command(name: str) -> None:
    found = choose({"node1": [agent(0, user=name)]})
    assert found.remark == "Running: torchrun of an account with an unusual name on node1"


@pytest.mark.parametrize(
    "unit",
    ["muster-launch-../../../x.service", "muster-launch-x.service", f"muster-launch-{FIRST}.service/../x", FIRST],
)
def test_what_has_no_id_is_no_launch_of_musters(unit: str) -> None:
    """Its id becomes the folder in which the diagnosis is kept."""
    assert hand_typed.of_muster({"node1": [agent(0, unit=unit)]}) == {}
