"""Following the output of a running launch."""

from __future__ import annotations

from typing import Any

from answering_nodes import AnsweringNodes
from launch_shapes import a_plan
from muster_controller.launch import following
from muster_controller.launch.following import ALL, Following

PLAN = a_plan()
WHO = {"uid": 1000, "launch_user": False}


def answer(begin: int, text: str, key: str = "0/stdout", *, over: bool = False, **more: Any) -> dict[str, Any]:
    part = {"begin": begin, "gap": 0, "offset": begin + len(text), "text": text, "more": False}
    return {"logs": {key: part}, "over": over, "offsets": {key: begin}, **more}


def followed(rank: int, **answers: list[Any]) -> tuple[bool, list[str], AnsweringNodes]:
    table = {(node, "follow"): given for node, given in answers.items()}
    nodes = AnsweringNodes({(node, "identity"): [WHO] for node in answers} | table)
    said: list[str] = []
    return Following(PLAN, nodes, said.append, rank).follow(lambda: False), said, nodes


def test_lines_of_all_ranks_are_shown_until_the_launch_ends() -> None:
    over, said, nodes = followed(
        ALL,
        node1=[answer(100, "step 1\nst"), answer(109, "ep 2\n", over=True)],
        node2=[answer(0, "agent\n", "agent"), {"logs": {}, "over": True}],
    )
    assert over
    assert sorted(said) == ["[node2 torchrun] agent", "[rank 0] step 1", "[rank 0] step 2"]
    offsets = [payload["offsets"] for node, verb, payload in nodes.asked if (node, verb) == ("node1", "follow")]
    assert offsets == [{}, {"0/stdout": 109}]


def test_following_one_rank_queries_only_its_node() -> None:
    over, said, nodes = followed(1, node1=[], node2=[answer(0, "x\n", over=True)])
    assert over
    assert said == ["[rank 1] x"]
    assert {node for node, _, _ in nodes.asked} == {"node2"}


def test_unknown_rank_is_reported() -> None:
    over, said, _ = followed(7, node1=[], node2=[])
    assert not over
    assert said == ["Launch 20260101-120000-abcd has no rank 7"]


def test_node_that_keeps_failing_is_dropped(monkeypatch: Any) -> None:
    monkeypatch.setattr(following, "PAUSE", 0.0)
    over, said, _ = followed(0, node1=["no route to host"] * 5, node2=[])
    assert not over
    assert said == ["node1: no route to host"]
