"""Compare the downloads of four nodes that share files with those of one node and of four nodes that do not share
files."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from counted import SHARED, counted_cluster
from machines import find_machine, list_nodes, run_playbook
from net_faults import rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from machines import Play, Result

pytestmark = pytest.mark.slow

NODES = ("node1", "node2", "node3", "node4")


@pytest.fixture
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Return a function that runs playbooks on four connected sandbox nodes."""
    list_nodes(len(NODES))

    def run(playbook: str, **requested: Any) -> Result:
        return run_playbook(tmp_path_factory.mktemp("play"), playbook, **requested)

    for playbook, tags in (("playbooks/sandbox_up.yml", None), ("site.yml", "baseline,network")):
        result = run(playbook, tags=tags)
        assert result.rc == 0, result.stdout
    return run


def test_four_nodes_together_download_as_much_as_one_node(
    play: Play, figures: Callable[[str, list[dict[str, Any]]], Path], tmp_path: Path
) -> None:
    with counted_cluster(play, [find_machine(name) for name in NODES], tmp_path) as cluster:
        sent = {}
        for what, nodes, closed in (
            ("one node", NODES[:1], ()),
            ("four nodes that get nothing from each other", NODES, NODES[:3]),
            ("four nodes", NODES, ()),
        ):
            cluster.clean()
            cluster.lock.unlink(missing_ok=True)
            with ExitStack() as shut:
                for name in closed:
                    shut.enter_context(rules(find_machine(name), f"tcp dport {SHARED} counter drop"))
                result, sent[what] = cluster.provide(*nodes)
            assert result.rc == 0, result.stdout
            assert {cluster.torch(find_machine(name)) for name in nodes} == {"2.0.0+cpu 1.0"}
    one, apart, together = sent.values()
    figures(
        "one_download",
        [{"": what, "bytes from the index": count, "of one": f"{count / one:.2f}"} for what, count in sent.items()],
    )
    assert apart > 3.9 * one
    assert together < 1.1 * one
