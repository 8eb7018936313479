"""Launches that somebody typed by hand: which launchers belong together, and what case they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from muster.diagnosis import hand_typed
from muster.diagnosis.case import Case
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
    typed = hand_typed.one_launch({"node2": [agent(1, (2, 3), "T")], "node1": [agent(0, (0, 1))]})
    assert [one.node for one in typed] == ["node1", "node2"]
    case = Case(hand_typed.case_shape(typed, SPECS, Gathered()))
    launch = case.launch
    assert (launch["how"], launch["live"], launch["world_size"]) == ("foreign", True, 4)
    assert (launch["master_addr"], launch["master_port"]) == ("192.0.2.1", 29600)
    assert [one["ranks"] for one in launch["nodes"]] == [[0, 1], [2, 3]]
    said = {(one.cause.id, one.place.node, one.place.rank) for one in decide(case, CAUSES).causes}
    assert ("process.stopped", "node2", 2) in said


def test_ranks_that_have_not_begun_are_reckoned() -> None:
    typed = hand_typed.one_launch({"node1": [agent(0)], "node2": [agent(1)]})
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
    assert [(one.node, one.agent["started"]) for one in hand_typed.one_launch(agents)] == [
        ("node1", 1000.0),
        ("node2", 1001.0),
    ]
    assert hand_typed.musters(agents) == ["20260101-120000-abcd"]
    assert hand_typed.one_launch({"node1": [of_muster]}) == []


def test_the_head_node_is_where_most_were_told() -> None:
    odd = agent(1)
    odd["argv"] = ["torchrun", "--nnodes=3", "--node-rank=2", "--rdzv-endpoint=[2001:db8::1]:29601", "train.py"]
    typed = hand_typed.one_launch({"node1": [agent(0)], "node2": [agent(1)], "node3": [odd]})
    assert hand_typed.most(one.head for one in typed) == ("192.0.2.1", 29600)
    assert typed[-1].head == ("2001:db8::1", 29601)
