"""The cluster's health, from what was looked at to what stands against a launch: one case in each file."""

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
def test_what_is_reported_and_what_is_refused(case: dict[str, Any]) -> None:
    health = judged(case)
    found = [finding for finding in health.findings if finding.status != "pass"]
    assert [[finding.id, finding.status, finding.node] for finding in found] == case["found"]
    assert as_lines(found) == case["lines"]
    assert health.refusal.splitlines() == case.get("refused", [])
    assert health.skipped == case.get("skipped", [])


def test_what_is_the_same_everywhere_is_said_to_be() -> None:
    health = judged({"looks": {name: {"traits": {"torch": "2.13.0", "nccl": None}} for name in ("node1", "node2")}})
    assert [(finding.id, finding.status, finding.observed) for finding in health.findings] == [
        ("versions.torch.differ", "pass", "2.13.0")
    ]


def test_what_was_spared_is_not_called_sound() -> None:
    sick = {"findings": [{"id": "os.shm", "status": "fail"}]}
    spared = judged({"gate": "warn", "looks": {"node1": sick}})
    assert table.summary(spared, {}, 1).startswith("1 failed check counted as warnings: 1 node, ")
    sound = judged({"gate": "warn", "looks": {"node1": {}}})
    assert table.summary(sound, {}, 1).startswith("ready to launch: 1 node, ")


def test_the_metrics_of_a_node_are_in_the_format_of_prometheus() -> None:
    findings = [
        Finding("gpu.xid", "pass", "node1", ""),
        Finding("gpu.xid", "fail", "node1", ""),
        Finding("net.master_port.dropped", "warn", "node1", "", peer='a"b\\'),
    ]
    assert metrics.textfile(findings, 1_800_000_000.5).splitlines()[2:] == [
        'muster_check_status{check="gpu.xid",peer=""} 2',
        'muster_check_status{check="net.master_port.dropped",peer="a\\"b\\\\"} 1',
        "# HELP muster_check_timestamp_seconds When Muster last looked at this node.",
        "# TYPE muster_check_timestamp_seconds gauge",
        "muster_check_timestamp_seconds 1800000000",
    ]


def test_the_report_has_the_worst_first_and_what_was_not_looked_at_last() -> None:
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
