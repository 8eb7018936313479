"""Messages about a launch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from launch_shapes import UNIT, a_plan
from muster.launch import text
from muster.verdict.finding import Finding, add_up, evidence

if TYPE_CHECKING:
    from muster.launch.planned import LaunchPlan, PlannedImage


def plan(nodes: int) -> LaunchPlan:
    shown = {
        "env": {"NAME": "two words"},
        "from_node": {"HOME": "home directory of muster"},
        "argv": ["torchrun", "train.py", "--name=a b"],
    }
    ranks = {f"node{number}": 2 for number in range(1, nodes + 1)}
    return a_plan(ranks, given={"HF_TOKEN": "launch_env_file"}, entry=shown)


def test_headline_names_the_first_nodes() -> None:
    line = text.headline(plan(10))
    assert line.startswith("launch 20260101-120000-abcd: 20 ranks (node1 ranks 0-1, node2 ranks 2-3, ")
    assert line.endswith("node8 ranks 14-15, and 2 more nodes), gloo, 10.0.0.1 port 29500")


def test_removed_logs_are_reported_once_for_all_nodes() -> None:
    earlier = "20260101-110000-abcd"
    starts = {f"node{number}": {"pruned": [earlier], "bytes": 10**9} for number in range(1, 6)}
    assert text.pruned({**starts, "node9": {"pruned": [], "bytes": 0}, "node10": {}}) == (
        f"old logs of {earlier} were removed on node1, node2, node3 and 2 more: 5 GB"
        " (cluster_run_keep, cluster_run_keep_mb)"
    )
    assert text.pruned({"node1": {"pruned": [], "bytes": 0}}) == ""


def test_plan_is_shown_as_shell_commands() -> None:
    lines = text.describe(plan(1)).splitlines()
    assert lines[2:] == [
        f"node1  (node rank 0, ranks 0-1, unit {UNIT})",
        "  NAME='two words' \\",
        "  HF_TOKEN=<from launch_env_file> \\",
        "  HOME=<home directory of muster> \\",
        "  torchrun \\",
        "    train.py \\",
        "    '--name=a b'",
    ]


def test_several_reasons_are_listed_with_their_evidence() -> None:
    first = Finding("launch.exit", "fail", "node1", "exited with code 3", evidence=evidence("stderr", "oh"))
    second = Finding("launch.leftover", "fail", "node2", "left: PID 7")
    assert text.failure_text(add_up([first])).splitlines() == ["node1: exited with code 3", "", "stderr:", "oh"]
    assert text.failure_text(add_up([first, second])).splitlines() == [
        "- node1: exited with code 3",
        "- node2: left: PID 7",
        "",
        "stderr:",
        "oh",
    ]


def test_launch_type_and_user_are_shown() -> None:
    own = a_plan(1, entry={"run_dir": "/users/ada/launches/x"}, user="ada", manager="user")
    assert text.whose(own) == "User launch by ada, without root. Logs on the nodes: /users/ada/launches"
    other = replace(own, user="muster", manager="system")
    assert text.whose(other).startswith("Administrator launch, run as muster and started by root. ")


def test_account_is_shown_as_a_placeholder_before_nodes_are_contacted() -> None:
    assert "folders below /users/NAME (launch_as)" in text.not_asked_yet("auto", "/users")
    assert text.not_asked_yet("self", "/users") == "\nNAME is a placeholder for the login account.\n"
    assert text.not_asked_yet("cluster_user", "/users") == ""


def test_plan_shows_the_container_image() -> None:
    image: PlannedImage = {"source": "train.tar", "id": "a" * 64, "folders": []}
    assert (
        text.describe(replace(plan(1), image=image)).splitlines()[1]
        == "in the image train.tar, added to the image's environment"
    )


def test_last_line_of_a_plan_counts_ranks_and_nodes() -> None:
    assert text.planned_outcome(plan(2), only=True) == (
        "the plan has 4 ranks on 2 nodes with the rendezvous at 10.0.0.1 port 29500; no node was contacted, and nothing"
        " was changed"
    )
    assert text.planned_outcome(plan(2), only=False) == (
        "launching 4 ranks on 2 nodes with the rendezvous at 10.0.0.1 port 29500"
    )
