"""The verdict of a launch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launch_shapes import UNIT, a_plan
from muster.launch import outcome
from muster.launch.endings import Ending
from muster.launch.failure import NodeReport
from muster.launch.occupied import TAKEN
from muster.launch.outcome import LaunchRecord, Left
from muster.launch.watch import Decision
from muster.verdict.finding import Finding

if TYPE_CHECKING:
    from muster.launch.endings import Decided
    from muster.launch.messages import ProcessFacts, Result
    from muster.verdict.finding import Verdict

PLAN = a_plan()


def judged(ending: Decided | None, text: str = "", node: str = "", **more: Any) -> Verdict:
    given: dict[str, Any] = {
        "reports": [NodeReport("node1"), NodeReport("node2", first_rank=1)],
        "stop_began": 1000.0,
        **more,
    }
    decision = Decision(ending, text, node) if ending else None
    return outcome.judge(LaunchRecord(PLAN, decision, **given), "artifacts/rack/x/logs")


def test_finished_launch_is_healthy() -> None:
    verdict = judged(Ending.FINISHED)
    assert (verdict["status"], verdict["summary"]) == ("healthy", "2 ranks on 2 nodes succeeded (gloo)")


def test_known_outcome_is_not_replaced_by_an_unknown_one() -> None:
    """A supervisor that attaches to a finished launch, or stops it, receives no result."""
    finished, interrupted = judged(Ending.FINISHED), judged(Ending.INTERRUPTED, "stopped by a user (launch_stop)")
    assert outcome.knows_less(interrupted, finished)
    assert not outcome.knows_less(interrupted, judged(Ending.DETACHED))
    assert not outcome.knows_less(interrupted, {})
    assert not outcome.knows_less(interrupted, {"findings": [{"id": "health.gpu", "status": "fail"}]})
    assert not outcome.knows_less(finished, interrupted)
    left = judged(Ending.INTERRUPTED, "x", leftovers={"node1": Left("the unit is still active", [])})
    assert not outcome.knows_less(left, finished)


def test_warnings_of_a_finished_launch_are_reported() -> None:
    verdict = judged(Ending.FINISHED, preflight=[Finding("launch.gpus", "warn", "node2", "idle GPUs")])
    assert verdict["status"] == "degraded"
    assert verdict["summary"].endswith("succeeded (gloo); node2: idle GPUs")


def test_occupied_resource_is_reported_with_its_holder() -> None:
    """The findings name the holder of the resource, and earlier warnings are kept."""
    found = [TAKEN.fail("node2", "launch x has GPU 0", "Wait", "look"), Finding("launch.gpus", "warn", "node1", "idle")]
    verdict = judged(Ending.TAKEN, "launch x has GPU 0", "node2", preflight=found)
    assert (verdict["status"], verdict["summary"]) == ("failed", "node2: launch x has GPU 0. Wait: look")
    assert [finding["id"] for finding in verdict["findings"]] == ["launch.gpus", "launch.taken"]


def test_leftover_processes_of_a_finished_launch_are_reported() -> None:
    more = "session-4.scope"
    inside: ProcessFacts = {"pid": 7, "command": "x", "user": "muster", "unit": UNIT}
    beyond: ProcessFacts = {"pid": 8, "command": "x", "user": "muster", "unit": more}
    verdict = judged(Ending.FINISHED, leftovers={"node2": Left("", [inside, beyond])})
    assert verdict["status"] == "failed"
    assert verdict["summary"] == (
        f"node2: the launch has not ended completely: PID 7 of muster (x, unit {UNIT}), PID 8 of muster (x, unit"
        " session-4.scope). End the processes with: ansible node2 --become -m ansible.builtin.command -a"
        f" 'systemctl stop {UNIT}'"
    )


def test_kill_command_is_shown_for_a_leftover_process_outside_the_unit() -> None:
    process: ProcessFacts = {"pid": 8, "command": "sleep 9", "user": "muster", "unit": "cron.service"}
    verdict = judged(Ending.FINISHED, leftovers={"node2": Left("", [process])})
    assert verdict["summary"].endswith(
        "End it on the node. PIDs can be reused. Before you run sudo kill 8, check that this is still the same process:"
        " ansible node2 -m ansible.builtin.command -a 'ps -o pid,lstart,user,args -p 8'"
    )


def test_no_kill_command_is_shown_without_a_visible_pid() -> None:
    process: ProcessFacts = {"pid": None, "command": "", "user": "muster", "unit": ""}
    verdict = judged(Ending.FINISHED, leftovers={"node2": Left("", [process])})
    assert "None" not in verdict["findings"][-1]["fix"]["command"]


def test_unit_that_is_still_deactivating_is_reported() -> None:
    verdict = judged(Ending.FINISHED, leftovers={"node2": Left("the unit is still deactivating", [])})
    assert (
        "node2: the launch has not ended completely: the unit is still deactivating. End the processes with: "
        in verdict["summary"]
    )


def test_finished_launch_with_an_unreachable_node_has_unknown_outcome() -> None:
    verdict = judged(Ending.FINISHED, unseen=["node2"])
    assert verdict["status"] == "unknown"
    assert verdict["summary"].startswith("node2: does not respond")


def test_rejected_launch_shows_two_reasons_and_counts_the_rest() -> None:
    port = Finding("launch.port", "fail", "node1", "the port is taken", fix={"text": "Stop it", "command": "kill 7"})
    users = [Finding("launch.user", "fail", name, "no user") for name in ("node1", "node2")]
    disk = Finding("launch.disk", "fail", "node2", "the disk is full")
    verdict = judged(None, preflight=[port, *users, disk])
    assert verdict["summary"] == (
        "not started. node1: the port is taken. Stop it: kill 7; node1, node2: no user; and 1 reason more"
    )


def test_interrupted_launch_has_unknown_outcome() -> None:
    verdict = judged(Ending.INTERRUPTED, "interrupted (SIGINT)")
    assert verdict["status"] == "unknown"
    assert "the launch was stopped early: interrupted (SIGINT)" in verdict["summary"]


def test_lost_node_is_named_even_without_a_reason() -> None:
    verdict = judged(Ending.NODE, "", "node2")
    assert verdict["summary"] == "node2: stopped responding. Check node2, then launch again"


def test_message_on_a_failure_without_evidence_refers_to_the_logs() -> None:
    verdict = judged(Ending.FAILED, "the launch ended on node2", "node2")
    assert verdict["summary"] == "node2: the launch ended on node2. Its logs: artifacts/rack/x/logs"


def exited(node: str, rank: int, code: int, text: str = "") -> NodeReport:
    log = f"failed (exitcode: {code}) local_rank: 0 (pid: 7) of binary: python3"
    ended: Result = {"reason": "exit", "code": 1, "ended_at": 10.0 + rank}
    return NodeReport(node, first_rank=rank, agent_log=log, ended=ended, stderr={"0": text})


def test_same_failure_on_every_rank_is_reported_once() -> None:
    verdict = judged(Ending.FAILED, reports=[exited("node1", 0, 3), exited("node2", 1, 3)])
    assert verdict["summary"] == (
        "node1: rank 0 (local rank 0) exited with code 3 (the same on every rank)."
        " Its log: artifacts/rack/x/logs/node1/rank0.stderr.log"
    )


def brought(launcher: str, *reports: NodeReport) -> Verdict:
    """Return the verdict on a launch that was started by a command instead of torchrun."""
    failed = any(report.ended for report in reports)
    decision = Decision(Ending.FAILED if failed else Ending.FINISHED, "", "")
    record = LaunchRecord(replace(PLAN, launcher=launcher), decision, reports=list(reports), stop_began=1000.0)
    return outcome.judge(record, "artifacts/rack/x/logs")


def ran(node: str, rank: int, **more: Any) -> NodeReport:
    ranks: list[Any] = [{"rank": rank, "local_rank": 0, "pid": 7, "gone_at": 9.0}]
    return NodeReport(node, **{"first_rank": rank, "ranks": ranks, "launcher": "the command", **more})


def test_command_with_missing_ranks_is_reported() -> None:
    verdict = brought("command", ran("node1", 0), NodeReport("node2", first_rank=1, launcher="the command"))
    assert verdict["status"] == "degraded"
    assert [f"{one['id']} {one['node']}: {one['summary']}" for one in verdict["findings"]] == [
        "launch.ranks node2: 0 of 1 rank detected",
        "launch.ended node1: 1 rank exited with code 0",
        "launch.ended node2: 1 rank exited with code 0",
    ]
    assert brought("command", ran("node1", 0), ran("node2", 1))["status"] == "healthy"
    assert brought("torchrun", NodeReport("node1"), NodeReport("node2"))["status"] == "healthy"


def test_existing_log_of_a_command_rank_is_named() -> None:
    marked = "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: nan\n"
    ended: Result = {"reason": "exit", "code": 4, "ended_at": 10.0}
    together = brought("command", ran("node1", 0), ran("node2", 1, agent_log=marked, ended=ended))
    log = "failed (exitcode: 1) local_rank: 0 (pid: 7) of binary"
    own = ran("node2", 1, stderr={"0": marked}, agent_log=log, ended=ended)
    apart = brought("command", ran("node1", 0), own)
    said = "node2: rank 1 (local rank 0) failed: ValueError: nan. Its log: artifacts/rack/x/logs/node2"
    assert [together["summary"], apart["summary"]] == [f"{said}/command.log", f"{said}/rank1.stderr.log"]


def test_failure_with_only_lost_connections_blames_no_node() -> None:
    text = "[rank1]: Traceback (most recent call last):\n[rank1]: torch.distributed.DistStoreError: recvValue failed"
    verdict = judged(Ending.FAILED, reports=[NodeReport("node1"), exited("node2", 1, 1, text)])
    finding = verdict["findings"][0]
    assert finding["id"] == "launch.exception"
    assert finding["node"] == "cluster"
    assert finding["summary"] == (
        "ranks lost their connections, but no rank reported an error of its own: torch.distributed.DistStoreError:"
        " recvValue failed"
    )
    assert "node2" not in verdict["summary"]
    assert finding["evidence"][0]["source"] == "stderr of rank 1 (node2, local rank 0)"
