"""Invented runs in the format that the steps of site.yml write."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from muster.launch.planned import LaunchPlan, PlannedNode
from muster.report import Artifacts

RANKS = 8  # per node
ODD_DRIVER, DEAF, SLOW, LATE = 1, 2, 3, 5  # indexes of nodes with faults
CHECKS = (
    *("launch.preflight", "net.peer", "net.names", "net.path_mtu", "gpu.count", "gpu.ecc", "gpu.row_remap", "gpu.xid"),
    *("nvlink.links", "fabric_manager.version", "pci.link", "sw.torch", "sw.nccl", "rdma.state", "rdma.rate"),
    *("eth.errors", "os.disk", "os.clock", "env.nccl", "job.stale", "job.port"),
)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{ 7 * 7 }}{% raw %}&amp;"


def names(count: int) -> list[str]:
    return [f"node{number}" for number in range(1, count + 1)]


def finding(identity: str, status: str, node: str, summary: str, **more: Any) -> dict[str, Any]:
    empty = {"observed": "", "expected": "", "evidence": [], "fix": {}}
    return {"id": identity, "status": status, "node": node, "summary": summary, **empty, **more}


def run(count: int, **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "id": "20261121-214858-1df3",
        "cluster": "lab",
        "playbook": "site.yml",
        "command": "ansible-playbook site.yml -i inventory/lab",
        "began": "2026-11-21T21:48:58+00:00",
        "seconds": 214.2,
        "nodes": names(count),
        "failures": [],
        "steps": [{"name": "Health", "seconds": 13.1}, {"name": "DDP smoke", "seconds": 31.0}],
        **more,
    }


def healthy(count: int) -> Artifacts:
    """Return a run in which every check passed on every node, and the training job succeeded."""
    found = [finding(check, "pass", node, "OK") for node in names(count) for check in CHECKS]
    summary = f"{RANKS * count} ranks on {count} nodes trained together (nccl): all-reduce exact, parameters equal"
    verdict = {
        "schema": 1,
        "status": "healthy",
        "summary": summary,
        "findings": found,
        "coverage": {"ran": sorted(CHECKS), "skipped": []},
    }
    this = run(count, status="healthy", sentence=summary, page=True, figures=figures(count, 181_000))
    return Artifacts(
        run=this,
        verdict=verdict,
        plan=plan(count),
        smoke=smoke(count),
        network=network(count, deaf=False),
        health={node: look(odd=False) for node in names(count)},
        logs={node: [f"logs/{node}/torchrun.log"] for node in names(count)},
        history=[this, *earlier(count)],
    )


def failed(count: int) -> Artifacts:
    """Return a run in which one node cannot be reached, one sends slowly, and one has a different driver."""
    well = healthy(count)
    deaf, slow, odd = names(count)[DEAF], names(count)[SLOW % count], names(count)[ODD_DRIVER]
    summary = "calls of every other node to port 29500 are dropped on the way"
    bad = [
        finding(
            "net.peer",
            "fail",
            deaf,
            summary,
            observed="dropped",
            expected="ok",
            evidence=[{"source": "node1 to node3", "text": "connect to 10.9.0.13 port 29500: no answer in 2 s"}],
            fix={"text": "Have the firewall opened with", "command": "ansible-playbook site.yml --tags network"},
        ),
        finding("eth.errors", "warn", slow, "enp1s0f0 counted 1204 receive errors", fix={"text": "Change the cable"}),
        finding(
            "os.clock", "unknown", odd, "chronyd did not answer in 5 s", fix={"command": "systemctl status chrony"}
        ),
        finding(
            "versions.driver.differ",
            "warn",
            odd,
            "the driver is 570.172.08, and 580.95.05 on most nodes",
            observed="570.172.08",
            expected="580.95.05",
            fix={"text": "Bring it to the others' with", "command": f"ansible-playbook site.yml --limit {odd}"},
        ),
    ]
    subjects = {(one["id"], one["node"]) for one in bad}
    rest = [one for one in well.verdict["findings"] if (one["id"], one["node"]) not in subjects]
    this = run(count, status="failed", sentence=f"{deaf}: {summary}", page=True, figures={"nodes": count})
    return Artifacts(
        run=this,
        verdict={**well.verdict, "status": "failed", "summary": f"{deaf}: {summary}", "findings": [*bad, *rest]},
        network=network(count, deaf=True),
        health={node: look(odd=node == odd) for node in names(count)},
        history=[this, *earlier(count)],
    )


def inspected(count: int) -> Artifacts:
    """Return a healthy run with inspection warnings on three nodes."""
    text = "Use equal ids if the nodes share a file system. Muster never changes an existing account"
    found = [
        finding("user.uid.differs", "warn", node, "the uid is 1002, and 1001 on most nodes", fix={"text": text})
        for node in names(count)[:3]
    ]
    well = [finding("inspect.node", "pass", node, "nothing stands against it") for node in names(count)]
    return replace(healthy(count), inspect={"schema": 1, "status": "degraded", "findings": [*found, *well]})


def stopped(count: int) -> Artifacts:
    """Return a run that stopped before any check."""
    why = 'Data could not be sent to remote host "10.1.0.12": Connection timed out'
    failure = {"node": "node2", "task": "Inspect the node", "why": why, "unreachable": True, "before_verdict": False}
    this = run(count, failures=[failure], check=True)
    return Artifacts(run=this, history=[this])


def hostile() -> Artifacts:
    """Return a run whose names and logs contain HTML and template code."""
    well = healthy(3)
    bad = finding(
        HOSTILE,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        peer=HOSTILE,
        observed=HOSTILE,
        expected=HOSTILE,
        evidence=[{"source": HOSTILE, "text": HOSTILE}],
        fix={"text": HOSTILE, "command": HOSTILE},
    )
    failure = {"node": HOSTILE, "task": HOSTILE, "why": HOSTILE, "unreachable": False, "before_verdict": False}
    this = run(3, cluster=HOSTILE, command=HOSTILE, failures=[failure], options={HOSTILE: HOSTILE})
    link = {"from": HOSTILE, "to": "node1", "outcome": HOSTILE, "ports": {HOSTILE: HOSTILE}, "rtt_ms": 1}
    return Artifacts(
        run=this,
        verdict={**well.verdict, "status": "failed", "summary": HOSTILE, "findings": [bad]},
        plan=replace(plan(1), master_addr=HOSTILE, nodes=[replace(plan(1).head, node=HOSTILE)]),
        smoke={**smoke(1), "ranks": [{**smoke(1)["ranks"][0], "from_node": HOSTILE, "device": HOSTILE}]},
        network={"nodes": [HOSTILE, "node1"], "port": HOSTILE, "links": [link]},
        health={HOSTILE: {"traits": {HOSTILE: HOSTILE}, "skipped": [{"id": HOSTILE, "why": HOSTILE}]}},
        logs={HOSTILE: [f"logs/{HOSTILE}/{HOSTILE}"]},
        history=[{**this, "id": HOSTILE, "page": True, "sentence": HOSTILE, "playbook": HOSTILE, "began": HOSTILE}] * 2,
    )


def plan(count: int) -> LaunchPlan:
    nodes = [
        PlannedNode(
            node,
            place,
            list(range(place * RANKS, place * RANKS + RANKS)),
            RANKS,
            f"10.9.{place // 200}.{11 + place % 200}",
            "ens6f0",
        )
        for place, node in enumerate(names(count))
    ]
    return LaunchPlan("", "rack", "muster", "nccl", "10.9.0.11", 29500, RANKS * count, nodes)


def smoke(count: int) -> dict[str, Any]:
    chance = random.Random(count)
    steps = [
        {
            "step": step,
            "loss": 2.3 * 0.9**step + chance.uniform(0, 0.05),
            "samples_per_second": chance.uniform(170, 182),
        }
        for step in range(2, 41)
    ]
    ranks = [
        {
            "rank": place * RANKS + local,
            "from_node": node,
            "device": f"cuda:{local}",
            "samples_per_second": 1400 * (0.6 if place == LATE else 1) + chance.uniform(-9, 9),
            "loss_last": 0.0337,
        }
        for place, node in enumerate(names(count))
        for local in range(RANKS)
    ]
    return {"samples_per_second": 181234.4, "loss_first": 2.293, "loss_last": 0.0337, "steps": steps, "ranks": ranks}


def network(count: int, *, deaf: bool) -> dict[str, Any]:
    """Return the link of every ordered pair. With more than 16 nodes, only some links have a measured throughput."""
    chance = random.Random(count)
    nodes = names(count)
    links = []
    for one in nodes:
        for other in nodes:
            if one == other:
                continue
            lost = deaf and other == nodes[DEAF]
            slow = deaf and one == nodes[SLOW % count]
            measured = not lost and (count <= 16 or chance.random() < 8 / count)
            links.append(
                {
                    "from": one,
                    "to": other,
                    "ports": {"29500": "dropped" if lost else "ok", "40001": "ok"},
                    "outcome": "dropped" if lost else "ok",
                    "rtt_ms": None if lost else round(chance.uniform(0.08, 0.16), 3),
                    "loss": None if lost else 0.0,
                    "path_mtu": None if lost else 9000,
                    "gbps": round(chance.uniform(88, 97) * (0.2 if slow else 1), 1) if measured else None,
                    "offset_ms": 0.02,
                    "source": "10.9.0.11",
                    "interface": "ens6f0",
                }
            )
    return {"schema": 1, "nodes": nodes, "port": 29500, "links": links}


def look(*, odd: bool) -> dict[str, Any]:
    traits = {
        "os": "Ubuntu 24.04",
        "kernel": "6.8.0-85-generic",
        "driver": "570.172.08" if odd else "580.95.05",
        "torch": "2.13.0+cu130",
        "nccl": "2.28.9",
        "mtu": "9000",
        "hca_firmware": None,
    }
    return {"traits": traits, "ran": CHECKS, "skipped": [{"id": "rdma.gid", "why": "the link layer is InfiniBand"}]}


def figures(count: int, speed: float) -> dict[str, Any]:
    return {"nodes": count, "world_size": RANKS * count, "backend": "nccl", "samples_per_second": speed}


def earlier(count: int) -> list[dict[str, Any]]:
    """Return eight runs, newest first; the third is slower than the runs before it."""
    return [
        {
            "id": f"202611{20 - number:02}-101010-aaaa",
            "began": f"2026-11-{20 - number:02}T10:10:10+00:00",
            "playbook": "site.yml",
            "status": "healthy",
            "sentence": f"{RANKS * count} ranks on {count} nodes trained together",
            "page": True,
            "figures": figures(count, 181_000 * (0.7 if number == 2 else 1) + 100 * number),
        }
        for number in range(8)
    ]


def restarted(count: int) -> Artifacts:
    """Return a launch that continued from a checkpoint in a second attempt, without its last node."""
    kept = healthy(count)
    first, second = kept.run["id"], "20261121-215201-77a0"
    checkpoint = f"/var/lib/muster/work/{first}/output/step-400"
    left_out, rest = names(count)[-1], names(count)[:-1]
    why = f"attempt 1 ({first}) failed: {left_out}: stopped answering; continued with attempt 2 ({second})"
    found = [finding("launch.restarted", "warn", left_out, why), *kept.verdict["findings"]]
    of_both = [
        {"number": 1, "launch_id": first, "nodes": names(count), "failed": [left_out], "checkpoint": ""},
        {"number": 2, "launch_id": second, "nodes": rest, "failed": [], "checkpoint": checkpoint},
    ]
    of_both[0]["summary"] = f"{left_out}: stopped answering"
    of_both[1]["summary"] = f"{RANKS * len(rest)} ranks on {len(rest)} nodes succeeded (nccl)"
    verdict = {**kept.verdict, "status": "degraded", "findings": found}
    return replace(kept, verdict=verdict, attempts={"schema": 1, "attempts": of_both})
