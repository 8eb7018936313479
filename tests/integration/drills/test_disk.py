"""A disk that contains the folders of a launch is full."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from drill import CLEAN, NOTICED, Drill, only_failure
from drill_ways import in_variants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine

pytestmark = pytest.mark.moment


def use_small_disk(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    """Move the folders of the launch to /srv/small."""
    drill.variables.update(
        cluster_run_root="/srv/small/launches",
        cluster_work_root="/srv/small/work",
        cluster_users_root="/srv/small/users",
    )
    for machine in nodes if drill.user else ():
        machine.inside("install", "-d", "-o", drill.user, f"/srv/small/users/{drill.user}")


@contextmanager
def small_disk(machine: Machine, size: str) -> Iterator[None]:
    """Mount a small file system at /srv/small of a node."""
    machine.inside("mkdir", "-p", "/srv/small")
    machine.inside("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", "/srv/small")
    try:
        yield
    finally:
        machine.inside("umount", "--lazy", "/srv/small")


@in_variants("administrators")
def test_full_disk_blocks_a_launch(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    with small_disk(nodes[1], "8m"):
        use_small_disk(drill, nodes)
        finding = only_failure(drill.begin().end())
    assert finding["id"] == "launch.disk"
    assert finding["node"] == "node2"
    assert "/srv/small" in finding["summary"]


@in_variants("administrators")
def test_full_disk_during_a_launch_is_reported(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    with small_disk(nodes[1], "72m"):
        use_small_disk(drill, nodes)
        drill.begin("--fault=fill", "--rank=3").in_step()
        drill.fault(
            lambda: drill.open_gate(nodes[1]),
            lambda: nodes[1].inside("df", "--output=avail", "/srv/small").stdout.split()[-1] == "0",
        )
        verdict = drill.end()
        finding = only_failure(verdict)
        assert finding["node"] == "node2"
        # The disk is full for both ranks of the node, so either may fail first.
        assert "rank 2 " in finding["summary"] or "rank 3 " in finding["summary"]
        assert "No space left on device" in finding["summary"] or "/srv/small" in finding["summary"]
        drill.check_seconds(notice=NOTICED, clean=CLEAN)
        drill.check_nothing_left(*nodes)
        table("disk of the run directory full", drill, verdict)
