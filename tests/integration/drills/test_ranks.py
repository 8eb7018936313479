"""A rank fails, is killed, or stalls."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from drill import CLEAN, NOTICED, Drill, fields, hit, only_failure, processes
from drill_ways import LIGHT, in_variants

if TYPE_CHECKING:
    from machines import Machine

pytestmark = pytest.mark.moment


@in_variants("administrators", pipeline=LIGHT)
@pytest.mark.parametrize(
    "arguments", [(), pytest.param(("--record",), marks=pytest.mark.slow)], ids=["plain", "recorded"]
)
def test_exception_on_one_rank_is_reported(
    drill: Drill, nodes: tuple[Machine, Machine], table: Any, arguments: tuple[str]
) -> None:
    drill.begin("--fault=raise", "--rank=3", *arguments).in_step()
    drill.fault(lambda: drill.open_gate(nodes[1]), lambda: "sample 17" in drill.log_on(nodes[1], 1, "stderr"))
    drill.fault_at = drill.written_at(nodes[1], 1)
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.exception"
    assert finding["node"] == "node2"
    assert "rank 3" in finding["summary"]
    assert "sample 17 is broken" in finding["summary"]
    assert 'raise RuntimeError("sample 17 is broken")' in finding["evidence"][0]["text"]
    drill.check_seconds(notice=NOTICED, clean=CLEAN)
    drill.check_nothing_left(*nodes)
    table("exception on rank 3" + (" under @record" if arguments else ""), drill, verdict)


@in_variants(pipeline=LIGHT)
def test_rank_that_finishes_early_is_reported(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    """The launcher of node2 keeps its other rank running, and does not report the exit code."""
    drill.variables["launch_stall_timeout"] = 12
    drill.begin("--fault=leave", "--rank=3").in_step()
    pid = drill.pid(3)
    drill.fault(lambda: drill.open_gate(nodes[1]), lambda: pid not in processes(drill.launch_id))
    drill.end()
    [cause] = drill.result()["diagnosis"]["causes"]
    assert (cause["id"], cause["node"], cause["rank"]) == ("program.uneven_steps", "node2", 3)
    assert cause["proofs"][0]["text"].startswith("exit code 0")
    drill.check_nothing_left(*nodes)


@in_variants(pipeline=LIGHT)
def test_same_error_on_every_rank_is_reported_once(drill: Drill) -> None:
    drill.begin("--no-such-option")
    finding = only_failure(drill.end())
    assert "exited with code 2" in finding["summary"]
    assert "unrecognized arguments: --no-such-option" in finding["summary"]


@in_variants("administrators", pipeline=LIGHT)
def test_killed_rank_is_reported(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    pid = drill.pid(2)
    drill.fault(lambda: hit(pid, signal.SIGKILL), lambda: pid not in processes(drill.launch_id))
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.signal"
    assert finding["node"] == "node2"
    assert "rank 2" in finding["summary"]
    assert "SIGKILL" in finding["summary"]
    drill.check_seconds(notice=NOTICED, clean=CLEAN)
    drill.check_nothing_left(*nodes)
    table("kill -9 of rank 2", drill, verdict)


@in_variants(pipeline="administrators")
def test_stopped_rank_triggers_the_stall_timeout(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.variables["launch_stall_timeout"] = 4
    drill.begin().in_step()
    pid = drill.pid(1)
    drill.fault(lambda: hit(pid, signal.SIGSTOP), lambda: fields(pid)[0] == "T")
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.stalled"
    assert finding["node"] == "node1"
    assert "rank 1" in finding["summary"]
    assert "stopped by a signal (SIGSTOP)" in finding["summary"]
    assert len(finding["evidence"]) == 4  # the stack of every rank
    drill.check_seconds(notice=4 + NOTICED, clean=4 + CLEAN)
    drill.check_nothing_left(*nodes)
    table("SIGSTOP of rank 1 (launch_stall_timeout 4 s)", drill, verdict)


@in_variants("administrators")
def test_sleeping_rank_triggers_the_stall_timeout(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.variables["launch_stall_timeout"] = 4
    drill.begin("--fault=sleep", "--rank=2").in_step()
    drill.fault(lambda: drill.open_gate(nodes[1]), lambda: "waits\n" in drill.log_on(nodes[1], 0, "stdout"))
    drill.fault_at = time.time()
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.stalled"
    assert finding["node"] == "node2"
    assert "rank 2" in finding["summary"]
    assert "wait_forever" in finding["summary"]
    assert len(finding["evidence"]) == 4  # the stack of every rank
    drill.check_nothing_left(*nodes)
    table("rank 2 waits for a file (launch_stall_timeout 4 s)", drill, verdict)
