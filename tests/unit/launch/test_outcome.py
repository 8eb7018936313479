"""What a launch came to. Every file in cases/stall is a standstill of two nodes with one rank each: stderr by node,
ranks as the nodes saw them, and who must be named for it.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.launch import outcome
from muster.launch.failure import NodeReport
from muster.launch.watch import Decision, standing_still
from muster.verdict.finding import Finding

PLAN: dict[str, Any] = {
    "launch_id": "20260101-120000-abcd",
    "backend": "gloo",
    "world_size": 2,
    "nodes": [
        {"node": "node1", "nproc": 1, "ranks": [0], "unit": "muster-launch-x.service"},
        {"node": "node2", "nproc": 1, "ranks": [1], "unit": "muster-launch-x.service"},
    ],
}


def judged(kind: str, text: str = "", node: str = "", **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "preflight": [],
        "reports": [NodeReport("node1"), NodeReport("node2", first_rank=1)],
        "stop_began": 1000.0,
        "stalled": [],
        "leftovers": {},
        "unseen": [],
        "log_dir": "artifacts/rack/x/logs",
        **more,
    }
    return outcome.judge(PLAN, outcome.Ending(Decision(kind, text, node), **given))


@cases(__file__, "stall")
def test_standstill(case: dict[str, Any]) -> None:
    reports = [
        NodeReport(node, first_rank=rank, stderr={"0": text} if text else {})
        for rank, (node, text) in enumerate(case["stderr"].items())
    ]
    stalled = standing_still(case.get("ranks", {}))
    verdict = judged("stalled", "no rank wrote a line for 60 s", reports=reports, stalled=stalled)
    assert [f"{finding['node']}: {finding['summary']}" for finding in verdict["findings"]] == case["expect"]
    assert verdict["status"] == "failed"


def test_finished() -> None:
    verdict = judged("finished")
    assert (verdict["status"], verdict["summary"]) == ("healthy", "2 ranks on 2 nodes ran to their end (gloo)")


def test_finished_with_a_warning_says_which() -> None:
    verdict = judged("finished", preflight=[Finding("launch.gpus", "warn", "node2", "idle GPUs")])
    assert verdict["status"] == "degraded"
    assert verdict["summary"].endswith("ran to their end (gloo); node2: idle GPUs")


def test_finished_but_something_is_left() -> None:
    verdict = judged("finished", leftovers={"node2": "PID 7"})
    assert verdict["status"] == "failed"
    assert verdict["summary"] == "node2: left of the launch: PID 7. End it with: systemctl stop muster-launch-x.service"


def test_finished_but_a_node_was_not_seen_in_the_end() -> None:
    verdict = judged("finished", unseen=["node2"])
    assert verdict["status"] == "unknown"
    assert verdict["summary"].startswith("node2: does not answer")


def test_refused_tells_two_reasons_and_counts_the_others() -> None:
    port = Finding("launch.port", "fail", "node1", "the port is taken", fix={"text": "Stop it", "command": "kill 7"})
    users = [Finding("launch.user", "fail", name, "no user") for name in ("node1", "node2")]
    disk = Finding("launch.disk", "fail", "node2", "the disk is full")
    verdict = judged("refused", preflight=[port, *users, disk])
    assert verdict["summary"] == (
        "not started. node1: the port is taken. Stop it: kill 7; node1, node2: no user; and 1 reason more"
    )


def test_interrupted_is_not_known() -> None:
    verdict = judged("interrupted", "interrupted (SIGINT)")
    assert verdict["status"] == "unknown"
    assert "the launch was ended early: interrupted (SIGINT)" in verdict["summary"]


def test_lost_node_is_named_though_the_watch_knew_no_reason() -> None:
    verdict = judged("lost", "", "node2")
    assert verdict["summary"] == "node2: stopped answering. Look at node2, then launch again"


def test_failed_without_any_trace() -> None:
    verdict = judged("failed", "the launch ended on node2", "node2")
    assert verdict["summary"] == "node2: the launch ended on node2. Its logs: artifacts/rack/x/logs"


def exited(node: str, rank: int, code: int, text: str = "") -> NodeReport:
    log = f"failed (exitcode: {code}) local_rank: 0 (pid: 7) of binary: python3"
    ended = {"reason": "exit", "code": 1, "ended_at": 10.0 + rank}
    return NodeReport(node, first_rank=rank, agent_log=log, ended=ended, stderr={"0": text})


def test_the_same_on_every_rank() -> None:
    verdict = judged("failed", reports=[exited("node1", 0, 3), exited("node2", 1, 3)])
    assert verdict["summary"] == (
        "node1: rank 0 (local rank 0) exited with code 3 (the same on every rank)."
        " Its log: artifacts/rack/x/logs/node1/rank0.stderr.log"
    )


def test_only_lost_peers_is_said() -> None:
    text = "[rank1]: Traceback (most recent call last):\n[rank1]: torch.distributed.DistStoreError: recvValue failed"
    verdict = judged("failed", reports=[NodeReport("node1"), exited("node2", 1, 1, text)])
    finding = verdict["findings"][0]
    assert finding["id"] == "launch.exception"
    assert finding["summary"].endswith("(only connection errors were seen: no rank failed by itself before)")
    assert finding["evidence"][0]["source"] == "stderr of rank 1 (node2, local rank 0)"


def test_stack_keeps_its_innermost_lines() -> None:
    lines = [f'  File "/srv/job/train.py", line {number} in step' for number in range(1, 20)]
    header = "Current thread 0x00007f5dfce69b80 (most recent call first):"
    assert (
        outcome.last_stack("\n".join(["Thread 0x0 (most recent call first):", lines[9], header, *lines])) == lines[:8]
    )
