"""Cluster health, from the results of the nodes to the reasons that block a launch. Each file contains one case."""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.health import cluster, metrics, table
from muster.verdict.finding import Finding, Skipped, as_lines


def look(given: dict[str, Any], node: str) -> dict[str, Any]:
    findings = [{"node": node, "summary": "it is so", **finding} for finding in given.get("findings", [])]
    coverage = {"ran": ["os.disk"], "skipped": given.get("skipped", [])}
    return {"traits": given.get("traits", {}), "findings": findings, "verdict": {"coverage": coverage}}


def judged(case: dict[str, Any]) -> cluster.Health:
    looks = {name: look(given or {}, name) for name, given in case["looks"].items()}
    plan = {"participants": case.get("participants", list(looks)), "quarantined": case.get("quarantined", [])}
    between = case.get("network", {})
    coverage = {"ran": [], "skipped": between.get("skipped", [])}
    network = {"findings": between.get("findings", []), "verdict": {"coverage": coverage}}
    nodes = cluster.Nodes(plan, looks, case.get("lost", {}), case.get("left_out", []), network)
    return cluster.judge(nodes, case.get("gate", "fail"))


@cases(__file__, "cluster")
def test_cluster_report_and_launch_refusal_match_the_case(case: dict[str, Any]) -> None:
    health = judged(case)
    found = [finding for finding in health.findings if finding.status != "pass"]
    assert [[finding.id, finding.status, finding.node] for finding in found] == case["found"]
    assert as_lines(found) == case["lines"]
    assert health.refusal.splitlines() == case.get("refused", [])
    assert health.skipped == case.get("skipped", [])


def test_equal_values_on_all_nodes_are_reported_as_a_pass() -> None:
    health = judged({"looks": {name: {"traits": {"torch": "2.13.0", "nccl": None}} for name in ("node1", "node2")}})
    assert [(finding.id, finding.status, finding.observed) for finding in health.findings] == [
        ("versions.torch.differ", "pass", "2.13.0")
    ]


def test_summary_with_failures_counted_as_warnings_does_not_say_ready() -> None:
    sick = {"findings": [{"id": "os.shm", "status": "fail"}]}
    spared = judged({"gate": "warn", "looks": {"node1": sick}})
    assert table.summary(spared, {}, 1).startswith("1 failed check counted as warnings: 1 node, ")
    sound = judged({"gate": "warn", "looks": {"node1": {}}})
    assert table.summary(sound, {}, 1).startswith("ready to launch: 1 node, ")


def test_metrics_use_the_prometheus_format() -> None:
    findings = [
        Finding("gpu.xid", "pass", "node1", ""),
        Finding("gpu.xid", "fail", "node1", ""),
        Finding("net.master_port.dropped", "warn", "node1", "", peer='a"b\\'),
    ]
    assert metrics.textfile(findings, 1_800_000_000.5).splitlines()[2:] == [
        'muster_check_status{check="gpu.xid",peer=""} 2',
        'muster_check_status{check="net.master_port.dropped",peer="a\\"b\\\\"} 1',
        "# HELP muster_check_timestamp_seconds Time of the last Muster check of this node.",
        "# TYPE muster_check_timestamp_seconds gauge",
        "muster_check_timestamp_seconds 1800000000",
    ]


def test_report_starts_with_failures_and_ends_with_skipped_checks() -> None:
    findings = [
        Finding("a.b", "warn", "node1", "it is slow"),
        Finding("a.c", "fail", "node2", "it is broken", fix={"text": "Fix it with", "command": "fix"}),
        Finding("a.c", "pass", "node1", "it works"),
    ]
    skipped = [
        Skipped(id="gpu", node="node1", why="it has no GPU"),
        Skipped(id="gpu", node="node2", why="it has no GPU"),
        Skipped(id="os.kernel_log", node="node2", why="dmesg is not there"),
    ]
    measured = [(0.2, 9.4, "ok"), (0.4, None, "ok"), (None, None, "dropped"), (None, None, "not_tried")]
    links = [{"rtt_ms": rtt, "gbps": gbps, "outcome": outcome} for rtt, gbps, outcome in measured]
    health = cluster.Health(findings, skipped, {"a.c", "os.disk"}, "")
    assert table.report(health, {"links": links}, 2).splitlines() == [
        "FAIL  node2: it is broken. Fix it with: fix",
        "warn  node1: it is slow",
        "2 nodes, 3 checks, 3 links (median round trip 0.40 ms, 9.4 Gbit/s)",
        "2 checks skipped (reasons in the report)",
    ]
