"""When a launch goes on in a new attempt, and on which nodes.

cases/attempts_nodes: the nodes of the attempt that ended, those that it names and those that are not fit, spares -> the
nodes of the next one and what is said. cases/attempts_futile: attempts -> why no other one is made, "" for none.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from launch_shapes import LAUNCH_ID, UNIT, a_plan
from muster.launch import attempts, fit
from muster.launch.attempts import Attempt, Seat
from muster.launch.endings import Ending
from muster.launch.failure import NodeReport
from muster.launch.options import LaunchOptions
from muster.launch.outcome import Left, Record, judge
from muster.launch.watch import Decision
from muster.verdict.printable import ForeignText
from muster.verdict.reading import UnusableError

PLAN = a_plan()
RAISED = f"""Traceback (most recent call last):
  File "/var/lib/muster/launches/{LAUNCH_ID}/script/train.py", line 41, in <module>
    main()
  File "/var/lib/muster/launches/{LAUNCH_ID}/script/train.py", line 37, in main
    raise RuntimeError("sample 17 is broken")
RuntimeError: sample 17 is broken
"""
CUT_OFF = RAISED.replace("sample 17 is broken", "Connection closed by peer [10.0.0.1]:4242").replace(
    "script/train.py", "torch/distributed/distributed_c10d.py"
)
FIT: fit.Fit = {"running": [], "gpus": [], "gpu_error": ForeignText(""), "checkpoint": None}
IDLE: fit.GpuUse = {"index": 0, "used_mib": 3, "uncorrected": 0}


@cases(__file__, "attempts_nodes")
def test_the_nodes_of_the_next_attempt(case: dict[str, Any]) -> None:
    current = [Seat(*one) for one in case["current"].items()]
    spares = [Seat(*one) for one in case.get("spares", {}).items()]
    options = LaunchOptions(restarts=3, spares=list(case.get("spares", {})), min_nodes=case.get("min_nodes", 0))
    found = attempts.next_nodes(current, case["failed"], case.get("unfit", {}), spares, options)
    assert list(found) == case["expect"]


@cases(__file__, "attempts_futile")
def test_what_will_repeat_is_not_tried_again(case: dict[str, Any]) -> None:
    history = [Attempt(number, LAUNCH_ID, ["node1"], "x", **one) for number, one in enumerate(case["attempts"], 1)]
    assert attempts.futile(history, LaunchOptions(restarts=9, checkpoints=case["checkpoints"])) == case["expect"]


def raised(stderr: str) -> Record:
    report = NodeReport("node2", first_rank=1, last_answer=90.0, stderr={"0": stderr})
    report.ranks = [{"rank": 1, "local_rank": 0, "pid": 7, "gone_at": 80.0}]
    return Record(PLAN, Decision(Ending.FAILED, "x", "node2"), [], [NodeReport("node1"), report], stop_began=100.0)


def attempt_of(record: Record, number: int = 1) -> Attempt:
    return attempts.ended(record, judge(record, "logs"), number, 0.0)


def test_an_exception_has_a_kind_and_a_place_whatever_the_attempt_is_called() -> None:
    attempt = attempt_of(raised(RAISED))
    assert attempt.failed == ["node2"]
    assert attempt.signature == "RuntimeError at train.py:41 > train.py:37"
    assert attempts.signature(raised(RAISED.replace("17", "18"))) == attempt.signature
    assert not attempts.final(raised(RAISED), attempt)


def test_what_only_followed_from_another_failure_is_no_exception_that_will_repeat() -> None:
    assert attempts.signature(raised(CUT_OFF)) == ""


def test_a_node_that_is_lost_is_left_out_and_named() -> None:
    record = Record(PLAN, Decision(Ending.NODE, "no route", "node2"), [], [NodeReport("node1"), NodeReport("node2")])
    record.unseen = ["node2"]
    attempt = attempt_of(record)
    assert (attempt.failed, attempt.signature) == (["node2"], "")
    assert not attempts.final(record, attempt)


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.INTERRUPTED, Ending.DETACHED, Ending.TAKEN])
def test_ends_that_have_no_other_attempt(ending: Any) -> None:
    record = Record(PLAN, Decision(ending, "x"), [], [NodeReport("node1"), NodeReport("node2")])
    assert attempts.final(record, Attempt(2, LAUNCH_ID, ["node1", "node2"], "x"))


def test_a_time_limit_is_one_of_them() -> None:
    limited = NodeReport("node1", ended={"reason": "limit", "ended_at": 5.0}, last_answer=6.0)
    record = Record(PLAN, Decision(Ending.FAILED, "x", "node1"), [], [limited, NodeReport("node2")], stop_began=9.0)
    assert attempts.final(record, attempt_of(record))


def test_a_start_that_is_refused_has_no_other_one_but_a_later_attempt_has() -> None:
    refused = Record(PLAN, None, [Ending.NODE.check.fail("node2", "x")], [])
    assert attempts.final(refused, Attempt(1, LAUNCH_ID, ["node1", "node2"], "x"))
    assert not attempts.final(refused, Attempt(2, LAUNCH_ID, ["node1", "node2"], "x"))
    assert attempt_of(refused, 2).failed == ["node2"]


def test_what_nobody_saw_to_end_has_certainly_ended_after_its_lease_and_its_stop() -> None:
    record = raised(RAISED)
    assert attempts.certain_end(record, 11.0, 5.0) == 0
    record.unseen = ["node2"]
    assert attempts.certain_end(record, 11.0, 5.0) == 100.0 + 2 * 11.0 + 5.0 + attempts.SLACK


def test_a_process_outside_of_the_unit_ends_by_no_lease() -> None:
    record = raised(RAISED)
    record.leftovers = {"node2": Left("", [{"pid": 7, "command": "x", "user": "u", "unit": UNIT}])}
    assert attempts.stays(record) == ""
    record.leftovers["node2"].processes.append({"pid": 8, "command": "x", "user": "u", "unit": "session-4.scope"})
    assert attempts.stays(record) == f"node2: PID 8 of attempt {LAUNCH_ID} goes on outside of its unit"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"gpus": [IDLE]}, ""),
        ({"gpus": [], "gpu_error": ForeignText("no devices")}, "nvidia-smi fails: no devices"),
        ({"gpus": []}, "nvidia-smi lists 0 GPUs for 1 rank"),
        ({"gpus": [{**IDLE, "used_mib": 4000}]}, "GPU 0 has 4000 MiB in use still"),
        ({"gpus": [{**IDLE, "uncorrected": 1}]}, "GPU 0 has 1 memory error that could not be corrected"),
        ({"gpus": [IDLE], "running": [LAUNCH_ID]}, f"{LAUNCH_ID} has not ended there"),
    ],
)
def test_a_node_is_fit_when_the_old_attempt_has_ended_and_its_gpus_are_free(seen: Any, expected: str) -> None:
    look: Any = {**FIT, **seen}
    assert attempts.unfit(look, 1, gpus=True, shared=False) == expected
    assert attempts.unfit("does not answer", 1, gpus=True, shared=False) == "does not answer"


def test_memory_that_is_being_freed_is_waited_for() -> None:
    busy: fit.Fit = {**FIT, "gpus": [{**IDLE, "used_mib": 4000}]}
    assert attempts.may_pass(busy)
    assert not attempts.may_pass({**FIT, "gpus": [IDLE]})
    assert not attempts.may_pass("does not answer")


def test_the_newest_checkpoint_is_read_by_rank_0_where_it_is() -> None:
    old: fit.Fit = {**FIT, "checkpoint": {"path": "/w/step-5", "time": 5.0}}
    new: fit.Fit = {**FIT, "checkpoint": {"path": "/w/step-6", "time": 6.0}}
    seen: dict[str, Any] = {"node1": old, "node2": new, "node3": FIT, "node4": "does not answer"}
    assert attempts.newest(seen, ["node1", "node2", "node3", "node4"]) == (new["checkpoint"], ["node2"])
    assert attempts.newest(seen, ["node3", "node4"]) == (None, [])
    assert attempts.led_by(["node1", "node2", "node3"], ["node2"]) == ["node2", "node1", "node3"]
    assert attempts.led_by(["node1", "node2"], ["node1", "node2"]) == ["node1", "node2"]
    assert attempts.led_by(["node1", "node2"], []) == ["node1", "node2"]


@pytest.mark.parametrize(
    ("options", "detached", "expected"),
    [
        (LaunchOptions(restarts=3, spares=["node3"], min_nodes=1), False, []),
        (LaunchOptions(), True, []),
        (LaunchOptions(restarts=-1), False, ["launch_restarts is -1; it is a number from 0 to 49."]),
        (
            LaunchOptions(spares=["node3"], min_nodes=1),
            False,
            ["launch_spares and launch_min_nodes means nothing without launch_restarts: set it, say to 3."],
        ),
        (
            LaunchOptions(restarts=1, spares=["node2", "node9"], min_nodes=3),
            False,
            [
                "launch_spares names node2, which takes part already (cluster_launch_nodes).",
                "launch_spares names 'node9', which is not in gpu_nodes, or is quarantined.",
                "launch_min_nodes is 3, and 2 nodes take part.",
            ],
        ),
    ],
)
def test_problems_are_said_all_at_once(options: LaunchOptions, *, detached: bool, expected: list[str]) -> None:
    assert attempts.problems(options, ["node1", "node2"], ["node1", "node2", "node3"], unwatched=detached) == expected


def test_restarts_of_a_detached_launch_are_refused_with_the_reason() -> None:
    (problem,) = attempts.problems(LaunchOptions(restarts=1), ["node1"], ["node1"], unwatched=True)
    assert "launch_restarts of a detached launch needs a watcher on the head node" in problem


def finished() -> Any:
    record = Record(PLAN, Decision(Ending.FINISHED, "x"), [], [NodeReport("node1"), NodeReport("node2")])
    return judge(record, "logs")


def test_a_launch_that_ended_well_in_its_second_attempt_says_what_came_before() -> None:
    first = attempt_of(raised(RAISED))
    history = [first, Attempt(2, "20260101-130000-abcd", ["node1"], "fine")]
    verdict = attempts.whole_verdict(finished(), history, ["with attempt 2 (x) without node2"], "")
    assert verdict["status"] == "degraded"
    assert verdict["findings"][0]["id"] == "launch.restarted"
    assert verdict["findings"][0]["node"] == "node2"
    assert verdict["summary"].endswith(", in attempt 2")


def test_a_launch_that_is_given_up_says_why() -> None:
    record = raised(RAISED)
    history = [attempt_of(record), attempt_of(record, 2)]
    verdict = attempts.whole_verdict(judge(record, "logs"), history, ["on the same nodes"], "it repeats")
    assert verdict["status"] == "failed"
    assert verdict["findings"][-1]["id"] == "launch.given_up"
    assert verdict["summary"].endswith("given up after 2 attempts: it repeats")


@pytest.mark.parametrize(
    "data", [None, [], {}, {"gpus": [1], "running": []}, {"gpus": [{"index": "0"}], "running": []}]
)
def test_an_answer_of_another_shape_is_of_no_use(data: Any) -> None:
    with pytest.raises(UnusableError):
        fit.read(data)


@pytest.mark.parametrize("path", ["step-5", "/w/\x1b[1m", "", 5])
def test_a_checkpoint_that_is_no_path_is_none(path: Any) -> None:
    data = {"gpus": [], "running": [LAUNCH_ID, "x", 5], "checkpoint": {"path": path, "time": 5.0}}
    read = fit.read(data)
    assert (read["running"], read["checkpoint"]) == ([LAUNCH_ID], None)


def test_a_checkpoint_on_some_nodes_alone_is_said_to_be() -> None:
    assert attempts.alone("/srv/1.pt", ["node2"], ["node2", "node1"]) == (
        "/srv/1.pt is on node2 alone: rank 0 finds it there. A script that reads it on every rank needs it on all"
        " nodes, as in a launch_chdir that they share"
    )
    assert attempts.alone("/srv/1.pt", ["node1", "node2"], ["node2", "node1"]) == ""
    assert attempts.alone("", [], ["node1"]) == ""
