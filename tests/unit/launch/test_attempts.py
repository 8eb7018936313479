"""Retries of a launch, and the nodes they use.

cases/attempts_nodes: nodes of the previous attempt, failed and unavailable nodes, spare nodes -> nodes of the next
attempt, and its description. cases/attempts_futile: attempts -> the reason for no further attempt, or "" if there is
one.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from launch_shapes import LAUNCH_ID, UNIT, a_plan
from muster.launch import attempts, fit
from muster.launch.attempts import LaunchAttempt, Seat
from muster.launch.endings import Ending
from muster.launch.failure import NodeReport
from muster.launch.options import LaunchOptions
from muster.launch.outcome import LaunchRecord, Left, judge
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
def test_nodes_of_the_next_attempt(case: dict[str, Any]) -> None:
    current = [Seat(*one) for one in case["current"].items()]
    spares = [Seat(*one) for one in case.get("spares", {}).items()]
    options = LaunchOptions(restarts=3, spares=list(case.get("spares", {})), min_nodes=case.get("min_nodes", 0))
    found = attempts.next_nodes(current, case["failed"], case.get("unfit", {}), spares, options)
    assert list(found) == case["expect"]


@cases(__file__, "attempts_futile")
def test_launch_that_fails_the_same_way_twice_is_not_retried(case: dict[str, Any]) -> None:
    history = [
        LaunchAttempt(number, LAUNCH_ID, ["node1"], "x", **one) for number, one in enumerate(case["attempts"], 1)
    ]
    assert attempts.futile(history, LaunchOptions(restarts=9, checkpoints=case["checkpoints"])) == case["expect"]


def raised(stderr: str) -> LaunchRecord:
    report = NodeReport("node2", first_rank=1, last_answer=90.0, stderr={"0": stderr})
    report.ranks = [{"rank": 1, "local_rank": 0, "pid": 7, "gone_at": 80.0}]
    return LaunchRecord(
        PLAN, Decision(Ending.FAILED, "x", "node2"), [], [NodeReport("node1"), report], stop_began=100.0
    )


def attempt_of(record: LaunchRecord, number: int = 1) -> LaunchAttempt:
    return attempts.ended(record, judge(record, "logs"), number, 0.0)


def test_signature_of_an_exception_is_independent_of_the_launch_id() -> None:
    attempt = attempt_of(raised(RAISED))
    assert attempt.failed == ["node2"]
    assert attempt.signature == "RuntimeError at train.py:41 > train.py:37"
    assert attempts.signature(raised(RAISED.replace("17", "18"))) == attempt.signature
    assert not attempts.final(raised(RAISED), attempt)


def test_exception_caused_by_another_rank_has_no_signature() -> None:
    assert attempts.signature(raised(CUT_OFF)) == ""


def test_lost_node_is_listed_as_failed() -> None:
    record = LaunchRecord(
        PLAN, Decision(Ending.NODE, "no route", "node2"), [], [NodeReport("node1"), NodeReport("node2")]
    )
    record.unseen = ["node2"]
    attempt = attempt_of(record)
    assert (attempt.failed, attempt.signature) == (["node2"], "")
    assert not attempts.final(record, attempt)


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.INTERRUPTED, Ending.DETACHED, Ending.TAKEN])
def test_launch_that_did_not_fail_gets_no_further_attempt(ending: Any) -> None:
    record = LaunchRecord(PLAN, Decision(ending, "x"), [], [NodeReport("node1"), NodeReport("node2")])
    assert attempts.final(record, LaunchAttempt(2, LAUNCH_ID, ["node1", "node2"], "x"))


def test_no_further_attempt_starts_after_the_time_limit() -> None:
    limited = NodeReport("node1", ended={"reason": "limit", "ended_at": 5.0}, last_answer=6.0)
    record = LaunchRecord(
        PLAN, Decision(Ending.FAILED, "x", "node1"), [], [limited, NodeReport("node2")], stop_began=9.0
    )
    assert attempts.final(record, attempt_of(record))


def test_launch_rejected_before_its_start_is_retried_only_after_the_first_attempt() -> None:
    refused = LaunchRecord(PLAN, None, [Ending.NODE.check.fail("node2", "x")], [])
    assert attempts.final(refused, LaunchAttempt(1, LAUNCH_ID, ["node1", "node2"], "x"))
    assert not attempts.final(refused, LaunchAttempt(2, LAUNCH_ID, ["node1", "node2"], "x"))
    assert attempt_of(refused, 2).failed == ["node2"]


def test_launch_on_an_unreachable_node_ends_after_its_lease_and_stop_timeout() -> None:
    record = raised(RAISED)
    assert attempts.certain_end(record, 11.0, 5.0) == 0
    record.unseen = ["node2"]
    assert attempts.certain_end(record, 11.0, 5.0) == 100.0 + 2 * 11.0 + 5.0 + attempts.SLACK


def test_process_outside_the_unit_is_reported_as_leftover() -> None:
    record = raised(RAISED)
    record.leftovers = {"node2": Left("", [{"pid": 7, "command": "x", "user": "u", "unit": UNIT}])}
    assert attempts.stays(record) == ""
    record.leftovers["node2"].processes.append({"pid": 8, "command": "x", "user": "u", "unit": "session-4.scope"})
    assert attempts.stays(record) == f"node2: PID 8 of attempt {LAUNCH_ID} still running outside the launch's unit"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"gpus": [IDLE]}, ""),
        ({"gpus": [], "gpu_error": ForeignText("no devices")}, "nvidia-smi fails: no devices"),
        ({"gpus": []}, "nvidia-smi lists 0 GPUs for 1 rank"),
        ({"gpus": [{**IDLE, "used_mib": 4000}]}, "GPU 0 still has 4000 MiB in use"),
        ({"gpus": [{**IDLE, "uncorrected": 1}]}, "GPU 0 has 1 uncorrected memory error"),
        ({"gpus": [IDLE], "running": [LAUNCH_ID]}, f"earlier attempts are still running: {LAUNCH_ID}"),
    ],
)
def test_node_is_available_once_the_old_attempt_ended_and_its_gpus_are_free(seen: Any, expected: str) -> None:
    look: Any = {**FIT, **seen}
    assert attempts.unfit(look, 1, gpus=True, shared=False) == expected
    assert attempts.unfit("does not answer", 1, gpus=True, shared=False) == "does not answer"


def test_next_attempt_waits_while_gpu_memory_is_being_freed() -> None:
    busy: fit.Fit = {**FIT, "gpus": [{**IDLE, "used_mib": 4000}]}
    assert attempts.may_pass(busy)
    assert not attempts.may_pass({**FIT, "gpus": [IDLE]})
    assert not attempts.may_pass("does not answer")


def test_rank_0_runs_on_a_node_with_the_newest_checkpoint() -> None:
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
        (LaunchOptions(restarts=-1), False, ["launch_restarts is -1, but must be between 0 and 49."]),
        (
            LaunchOptions(spares=["node3"], min_nodes=1),
            False,
            ["launch_spares and launch_min_nodes: no effect without launch_restarts. Set it, for example to 3."],
        ),
        (
            LaunchOptions(restarts=1, spares=["node2", "node9"], min_nodes=3),
            False,
            [
                "launch_spares contains node2, which is already in the launch (cluster_launch_nodes).",
                "launch_spares contains 'node9', which is not in gpu_nodes or is quarantined.",
                "launch_min_nodes is 3, but must be between 0 and 2.",
            ],
        ),
    ],
)
def test_all_option_problems_are_reported_at_once(
    options: LaunchOptions, *, detached: bool, expected: list[str]
) -> None:
    assert attempts.problems(options, ["node1", "node2"], ["node1", "node2", "node3"], unwatched=detached) == expected


def test_restarts_of_a_detached_launch_are_rejected_with_a_reason() -> None:
    (problem,) = attempts.problems(LaunchOptions(restarts=1), ["node1"], ["node1"], unwatched=True)
    assert "launch_restarts with launch_detached requires a watcher on the head node" in problem


def finished() -> Any:
    record = LaunchRecord(PLAN, Decision(Ending.FINISHED, "x"), [], [NodeReport("node1"), NodeReport("node2")])
    return judge(record, "logs")


def test_successful_second_attempt_reports_the_first_failure() -> None:
    first = attempt_of(raised(RAISED))
    history = [first, LaunchAttempt(2, "20260101-130000-abcd", ["node1"], "fine")]
    verdict = attempts.whole_verdict(finished(), history, ["with attempt 2 (x) without node2"], "")
    assert verdict["status"] == "degraded"
    assert verdict["findings"][0]["id"] == "launch.restarted"
    assert verdict["findings"][0]["node"] == "node2"
    assert verdict["summary"].endswith(", in attempt 2")


def test_reason_for_no_further_attempt_is_reported() -> None:
    record = raised(RAISED)
    history = [attempt_of(record), attempt_of(record, 2)]
    verdict = attempts.whole_verdict(judge(record, "logs"), history, ["on the same nodes"], "it repeats")
    assert verdict["status"] == "failed"
    assert verdict["findings"][-1]["id"] == "launch.given_up"
    assert verdict["summary"].endswith("given up after 2 attempts: it repeats")


@pytest.mark.parametrize(
    "data", [None, [], {}, {"gpus": [1], "running": []}, {"gpus": [{"index": "0"}], "running": []}]
)
def test_availability_answer_with_wrong_shape_is_rejected(data: Any) -> None:
    with pytest.raises(UnusableError):
        fit.read(data)


@pytest.mark.parametrize("path", ["step-5", "/w/\x1b[1m", "", 5])
def test_checkpoint_without_a_valid_path_is_ignored(path: Any) -> None:
    data = {"gpus": [], "running": [LAUNCH_ID, "x", 5], "checkpoint": {"path": path, "time": 5.0}}
    read = fit.read(data)
    assert (read["running"], read["checkpoint"]) == ([LAUNCH_ID], None)


def test_checkpoint_on_only_some_nodes_is_reported() -> None:
    assert attempts.alone("/srv/1.pt", ["node2"], ["node2", "node1"]) == (
        "/srv/1.pt exists only on node2, where rank 0 runs. If every rank reads"
        " the checkpoint, make it available on all nodes, for example in a shared launch_chdir"
    )
    assert attempts.alone("/srv/1.pt", ["node1", "node2"], ["node2", "node1"]) == ""
    assert attempts.alone("", [], ["node1"]) == ""
