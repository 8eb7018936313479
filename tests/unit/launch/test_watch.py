"""When the supervisor decides that a launch has ended, with a simulated clock."""

from __future__ import annotations

from typing import Any

import pytest

from muster.launch.endings import Ending
from muster.launch.watch import FOREVER, Limits, Watch

WELL = {"reason": "exit", "code": 0, "ended_at": 1.0}
RUNNING = {"ActiveState": "active", "Result": "success"}


def look(
    result: dict[str, Any] | None = None,
    unit: dict[str, str] | None = None,
    ranks: list[dict[str, Any]] | None = None,
    **logs: str,
) -> Any:
    """Return the answer of a node. logs: agent="...", or rank0="..." for the output of a rank."""
    parts = {("agent" if name == "agent" else f"{name[4:]}/stdout"): {"text": text} for name, text in logs.items()}
    return {"result": result, "unit": unit or RUNNING, "ranks": ranks or [], "logs": parts}


def watch(*nodes: str, **limits: Any) -> Watch:
    return Watch(dict.fromkeys(nodes or ("node1", "node2"), 2), 0.0, Limits(**limits))


def decided(seen: Watch, now: float) -> tuple[Ending, str] | None:
    decision = seen.decide(now)
    return (decision.ending, decision.node) if decision else None


def test_launch_runs_until_all_nodes_succeed() -> None:
    seen = watch()
    seen.saw("node1", look(WELL), 1.0)
    seen.saw("node2", look(), 1.0)
    assert decided(seen, 1.0) is None
    seen.saw("node2", look(WELL), 2.0)
    assert decided(seen, 2.0) == (Ending.FINISHED, "")


def test_launch_of_a_command_with_unknown_ranks_detaches_after_a_while() -> None:
    seen = watch(stall=10.0, until_running=True, any_ranks=True)
    for now in (1.0, 9.0, 18.0, 27.0):
        for node in ("node1", "node2"):
            seen.saw(node, look(agent="step\n"), now)
        assert decided(seen, now) is None
    seen.saw("node1", look(agent="step\n"), 31.0)
    assert decided(seen, 31.0) == (Ending.DETACHED, "")
    known = watch(stall=10.0)
    for node in ("node1", "node2"):
        known.saw(node, look(agent="torchrun says something\n"), 11.0)
    assert decided(known, 11.0) == (Ending.STALLED, "")


@pytest.mark.parametrize(
    "end",
    [
        look({"reason": "exit", "code": 1}),
        look({"reason": "lease"}),
        look({"reason": "stopped", "code": 0}),
        look({"reason": "exec", "error": "no such file"}),
        look(unit={"ActiveState": "failed", "Result": "signal"}),
        look(unit={"ActiveState": "inactive", "Result": "success"}),
    ],
)
def test_any_other_result_counts_as_a_failure_of_the_node(end: Any) -> None:
    seen = watch()
    seen.saw("node1", look(), 1.0)
    seen.saw("node2", end, 1.0)
    assert decided(seen, 1.0) == (Ending.FAILED, "node2")


@pytest.mark.parametrize(
    "line",
    [
        "W1121 09:08:36.567000 8516 torch/(...)/api.py:1028] Sending process 8520 closing signal SIGTERM\n",
        "E1121 09:08:36.603000 8516 torch/(...)/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 8522) of\n",
    ],
)
def test_failure_is_declared_once_torchrun_stops_its_ranks(line: str) -> None:
    seen = watch()
    seen.saw("node2", look(agent="W1121 Setting OMP_NUM_THREADS\n"), 1.0)
    assert decided(seen, 1.0) is None
    seen.saw("node2", look(agent=line), 2.0)
    seen.saw("node2", look(), 3.0)
    assert decided(seen, 3.0) == (Ending.FAILED, "node2")


def test_silent_node_is_reported_once_before_the_launch_is_ended() -> None:
    seen = watch()
    seen.saw("node2", look(), 10.0)
    seen.saw("node1", look(), 10.0)
    assert seen.notices(14.9) == []
    seen.saw("node1", look(), 15.0)
    seen.no_answer("node2", "ssh: no route to host")
    assert seen.notices(15.5) == ["node2 has not responded for 6 s; the launch is stopped after 9 s without a response"]
    assert seen.notices(16.0) == []
    seen.saw("node1", look(), 19.0)
    assert decided(seen, 19.0) is None
    decision = seen.decide(19.1)
    assert decision is not None
    assert (decision.ending, decision.node, decision.text) == (Ending.NODE, "node2", "ssh: no route to host")


def test_answer_resets_the_silence_timer() -> None:
    seen = watch("node1")
    assert len(seen.notices(6.0)) == 1
    seen.saw("node1", look(), 7.0)
    assert decided(seen, 14.0) is None
    assert len(seen.notices(13.0)) == 1


def test_no_node_is_blamed_if_all_nodes_are_silent() -> None:
    seen = watch("node1", "node2", "node3")
    seen.saw("node1", look(WELL), 1.0)
    seen.saw("node2", look(), 1.4)
    seen.saw("node3", look(), 1.0)
    decision = seen.decide(10.1)
    assert decision is not None
    why = "or the controller has lost its connection (increase launch_silence_timeout to wait longer)"
    assert (decision.ending, decision.text) == (Ending.INTERRUPTED, f"none of the 2 nodes responds, {why}")


def test_finished_node_is_allowed_to_be_silent() -> None:
    seen = watch()
    seen.saw("node1", look(WELL), 1.0)
    seen.saw("node2", look(), 20.0)
    assert seen.notices(20.0) == []
    assert decided(seen, 20.0) is None


def test_failure_takes_precedence_over_silence() -> None:
    seen = watch()
    seen.saw("node2", look({"reason": "exit", "code": 1}), 20.0)
    assert decided(seen, 20.0) == (Ending.FAILED, "node2")


def test_attached_supervisor_never_stops_a_silent_launch() -> None:
    seen = watch(patience=FOREVER)
    assert seen.notices(100.0) == ["node1, node2 have not responded for 100 s"]
    assert decided(seen, 100.0) is None


def test_stall_time_starts_at_the_last_line_of_any_rank() -> None:
    seen = watch("node1", stall=10.0, start=30.0, patience=FOREVER)
    seen.saw("node1", look(), 39.0)
    assert decided(seen, 39.0) is None
    seen.saw("node1", look(), 40.1)
    assert decided(seen, 40.1) == (Ending.STALLED, "")
    seen.saw("node1", look(rank1="step 1\n"), 41.0)
    seen.saw("node1", look(), 51.0)
    assert decided(seen, 51.0) is None
    seen.saw("node1", look(rank1="", agent="torchrun says something\n"), 51.1)
    assert decided(seen, 51.1) == (Ending.STALLED, "")


def test_silent_node_does_not_count_as_stalled() -> None:
    """A supervisor that was disconnected after attaching does not stop the launch: the output of that time still
    arrives."""
    seen = watch(stall=10.0, patience=FOREVER)
    seen.saw("node1", look(rank0="step 1\n"), 5.0)
    seen.saw("node2", look(), 5.0)
    assert decided(seen, 60.0) is None
    seen.saw("node2", look(), 60.0)
    assert decided(seen, 60.0) is None, "the rank with output is on the other node"
    seen.saw("node1", look(rank0="step 2\n"), 61.0)
    assert decided(seen, 71.0) is None
    seen.saw("node1", look(), 71.1)
    seen.saw("node2", look(), 71.2)
    assert decided(seen, 71.3) == (Ending.STALLED, "")


def test_finished_node_does_not_prevent_a_stall() -> None:
    seen = watch(stall=10.0, patience=FOREVER)
    seen.saw("node1", look(WELL), 1.0)
    seen.saw("node2", look(), 11.0)
    assert decided(seen, 11.0) == (Ending.STALLED, "")


def test_stall_is_not_detected_without_a_limit() -> None:
    assert decided(watch("node1", patience=FOREVER), 1e6) is None


def test_launch_detaches_when_all_ranks_run() -> None:
    seen = watch(until_running=True)
    ranks = [{"rank": 0, "gone_at": None}, {"rank": 1, "gone_at": None}]
    seen.saw("node1", look(ranks=ranks), 1.0)
    seen.saw("node2", look(ranks=ranks[:1]), 1.0)
    assert decided(seen, 1.0) is None
    seen.saw("node2", look(ranks=[ranks[0], {"rank": 1, "gone_at": 1.5}]), 2.0)
    assert decided(seen, 2.0) is None
    seen.saw("node2", look(ranks=ranks), 3.0)
    assert decided(seen, 3.0) == (Ending.DETACHED, "")


def ends(reason: str, left: float) -> dict[str, Any]:
    return {"ending": {"reason": reason, "seconds": 30.0, "left": left}}


@pytest.mark.parametrize(
    ("reason", "came"), [("limit", (Ending.FAILED, "node1")), ("asked", (Ending.INTERRUPTED, "node1"))]
)
def test_ranks_that_are_stopped_get_time_to_exit(reason: str, came: tuple[Ending, str]) -> None:
    seen = watch(stall=5)
    for now in range(0, 20, 2):
        seen.saw("node1", look(agent="Sending process 7 closing signal SIGTERM") | ends(reason, 20 - now), now)
        seen.saw("node2", look(ranks=[]) | ends(reason, 20 - now), now)
        assert decided(seen, now) is None
    seen.saw("node1", look({"reason": reason, "code": 0, "ended_at": 1.0}), 20)
    assert decided(seen, 20) is None, "node2 also has time"
    seen.saw("node2", look({"reason": reason, "code": 0, "ended_at": 1.0}), 21)
    assert decided(seen, 21) == came


def test_forged_rank_states_do_not_delay_the_decision() -> None:
    """The training user can forge the reported state of the ranks."""
    seen = watch()
    for now in (0.0, 20.0, 34.0):
        seen.saw("node1", look(agent="Sending process 7 closing signal SIGTERM") | ends("limit", 30.0), now)
        seen.saw("node2", look(), now)
        assert decided(seen, now) is None
    assert decided(seen, 35.5) == (Ending.FAILED, "node1")
