"""Faults that exist but do not explain the symptoms are not reported, neither alone nor in addition to the cause."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from sparse import case_of

ROOT = Path(__file__).resolve().parents[3]
NODES = ("node1", "node2", "node3")
PROBES = sorted(
    {
        question.id.removeprefix("probe.")
        for cause in CAUSES
        for question in (*cause.confirm, *cause.support, *cause.refute)
        if question.id.startswith("probe.") and "." in question.id.removeprefix("probe.")
    }
)


def everything_wrong() -> dict[str, Any]:
    """Return evidence with full disks, low limits, dropped connections, different versions and a broken GPU on node1.
    Every node has every finding that any cause refers to."""
    start: dict[str, Any] = {
        "unit": {"cpu": {"nr_periods": 0, "nr_throttled": 0}},
        "program": {"versions": {"torch": "1.9.0", "nccl": "2.1", "python": "3.7"}, "digests": {}, "environment": {}},
        "gpus": [],
        "counters": {"conntrack.drop": 0},
    }
    end: dict[str, Any] = {
        **start,
        "unit": {"cpu_max": 0.5, "pids_refused": 3, "cpu": {"nr_periods": 1000, "nr_throttled": 990}},
        "disks": [
            {"use": use, "path": path, "type": "ext4", "free": 0, "total": 9, "inodes_free": 0, "read_only": True}
            for use, path in (("work", "/srv"), ("shm", "/dev/shm"))
        ],
        "limits": {"max_open_files": [16, 16], "max_locked_memory": [16, 16]},
        "counters": {"conntrack.drop": 9, "conntrack.count": 9, "conntrack.max": 9},
        "kernel": [
            {"at": 149.0, "text": "NVRM: Xid (PCI:0000:17:00): 79, pid=4711, GPU has fallen off the bus."},
            {"at": 149.0, "text": "nf_conntrack: nf_conntrack: table full, dropping packet"},
        ],
    }
    other: dict[str, Any] = {
        "unit": {"cpu": {"nr_periods": 0, "nr_throttled": 0}},
        "program": {"versions": {"torch": "2.13.0", "nccl": "2.27"}, "digests": {}, "environment": {}},
    }
    findings = [
        {"id": check, "status": "fail", "node": node, "summary": "found now"} for check in PROBES for node in NODES
    ]
    return {
        "records": {
            "node1": {"start": start, "end": end},
            **{node: {"start": other, "end": other} for node in NODES[1:]},
        },
        "findings": findings,
        "ran": dict.fromkeys(NODES, PROBES),
    }


@pytest.mark.parametrize(
    ("code", "words", "cause"),
    [
        (1, "ZeroDivisionError: division by zero", "process.exception"),
        (1, "ValueError: Expected input batch_size (32) to match target batch_size (31).", "process.exception"),
        (3, "no licence was found", "process.exit"),
        (-11, "", "process.crash"),
    ],
)
def test_unrelated_faults_are_not_reported(code: int, words: str, cause: str) -> None:
    traceback = f'Traceback (most recent call last):\n  File "/srv/train.py", line 12, in <module>\n{words}\n'
    victim = (
        "Traceback (most recent call last):\n"
        '  File "/srv/venv/lib/torch/distributed/distributed_c10d.py", line 2810, in all_reduce\n'
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer\n"
    )
    seen = {
        "ranks": {
            0: {"code": 1, "gone_at": 150.4, "stderr": victim},
            3: {"code": code, "gone_at": 150.0, "stderr": traceback if code == 1 else words},
        },
        **everything_wrong(),
    }
    decided = decide(case_of(seen), CAUSES)
    assert [(one.cause.id, one.place.node, one.place.rank) for one in decided.causes] == [(cause, "node2", 3)]
    assert [one.cause.id for one in decided.also_seen] == []


def test_findings_of_probes_are_in_the_catalogue() -> None:
    listed = re.findall(r"^\| `([a-z0-9_.]+)` \|", (ROOT / "docs/findings.md").read_text(), re.MULTILINE)
    assert set(PROBES) - set(listed) == set()
