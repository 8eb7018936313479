"""Builds a diagnosis case from a sparse description in a case file: omitted parts are healthy or empty.

launch, ranks, nodes: differences from the default of two ranks on each of node1 (192.0.2.1), node2, node3; keys are
rank numbers and node names. raised: {rank: the exception that ended it, in line 12 of its script}. raised_by_all: the
exception that ended every rank, one second apart. said: {node: the exception that ended its launcher}. records:
{node: {start: …, end: …}}, with differences from RECORD.
snapshots, agents, findings, ran, not_looked, unanswered, boots, paths: see evidence.py; ranks of a snapshot with
differences from SHOT.
"""

from __future__ import annotations

import copy
from typing import Any

from muster.diagnosis.case import LaunchCase

FRAME = "/srv/venv/lib/python3.11/site-packages/torch/distributed/run.py"
RAISED = f'Traceback (most recent call last):\n  File "{FRAME}", line 1\n'
RECORD: dict[str, Any] = {
    "at": 100.0,
    "boot_id": "b007",
    "hostname": "",
    "interfaces": {},
    "routes": {},
    "names": {},
    "program": None,
    "limits": {},
    "counters": {},
    "unit": None,
    "pressure": {},
    "memory": {},
    "disks": [],
    "kernel": None,
    "gpus": None,
    "fabric": None,
    "left": [],
    "unseen": {},
}
PROGRAM: dict[str, Any] = {
    "argv": [],
    "executable": "",
    "interpreter": "",
    "script": "",
    "cwd": "",
    "digests": {},
    "versions": {},
    "environment": {},
}
UNIT: dict[str, Any] = {
    "memory_current": 1 << 30,
    "memory_max": None,
    "memory_events": {"oom": 0, "oom_kill": 0},
    "cpu_max": None,
    "cpu": {"nr_throttled": 0},
    "pids_current": 10,
    "pids_max": None,
    "pids_refused": 0,
    "frozen": False,
}
SHOT: dict[str, Any] = {
    "local_rank": 0,
    "pid": 4000,
    "state": "S",
    "wchan": "",
    "cpu": 1.0,
    "memory": 1 << 28,
    "files": 20,
    "threads": 4,
    "stack": [],
    "stack_why": "",
    "flight": None,
    "flight_why": "",
    "sockets": [],
    "said": 1.0,
}


def filled_in(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    unknown = set(given) - set(base)
    assert not unknown, f"the case has unknown keys: {unknown}"
    return {**copy.deepcopy(base), **given}


def record(given: dict[str, Any]) -> dict[str, Any]:
    found = filled_in(RECORD, given)
    for part, base in (("unit", UNIT), ("program", PROGRAM)):
        if found[part] is not None:
            found[part] = filled_in(base, found[part])
    return found


def failed_rank(rank: int, lines: str, gone_at: float = 150.0) -> dict[str, Any]:
    """Return a rank that ended with an exception, in the format of torch's excepthook."""
    text = f'Traceback (most recent call last):\n  File "/srv/train.py", line 12, in <module>\n{lines}'
    stderr = "".join(f"[rank{rank}]: {line}\n" for line in text.split("\n"))
    return {"code": 1, "gone_at": gone_at, "stderr": stderr}


def case_of(sparse: dict[str, Any]) -> LaunchCase:
    per_node = sparse.get("ranks_per_node", 2)
    names = sparse.get("participants", ["node1", "node2", "node3"])
    planned = [
        {
            "node": name,
            "address": f"192.0.2.{number + 1}",
            "interface": "eth0",
            "node_rank": number,
            "ranks": list(range(number * per_node, (number + 1) * per_node)),
        }
        for number, name in enumerate(names)
    ]
    launch = filled_in(
        {
            "launch_id": "20260101T000000-aaaaaa",
            "how": "muster",
            "own": False,
            "live": False,
            "backend": "gloo",
            "launcher": "torchrun",
            "world_size": per_node * len(names),
            "master_addr": "192.0.2.1",
            "master_port": 29500,
            "timeout": 120.0,
            "nodes": planned,
            "ending": "FAILED",
            "ending_text": "a rank failed",
            "ending_node": "",
            "starting": False,
            "began": 100.0,
            "stop_began": 200.0,
        },
        sparse.get("launch", {}),
    )
    raised = {rank: failed_rank(rank, lines) for rank, lines in sparse.get("raised", {}).items()}
    if "raised_by_all" in sparse:
        raised = {
            rank: failed_rank(rank, sparse["raised_by_all"], 150.0 + rank) for one in planned for rank in one["ranks"]
        }
    given_ranks = {**raised, **sparse.get("ranks", {})}
    ranks = []
    for one in planned:
        for local, rank in enumerate(one["ranks"]):
            default = {"code": None, "gone_at": None, "stderr": "", "error": ""}
            given = filled_in(default, given_ranks.get(rank, {}))
            ranks.append({"rank": rank, "node": one["node"], "local_rank": local, **given})
    default_end = {
        "reached": True,
        "lost": False,
        "lost_why": "",
        "last_answer": 199.0,
        "reason": "",
        "code": None,
        "error": "",
        "result": "success",
        "ended_at": 0.0,
        "log": "",
    }
    failed = {"reason": "exit", "code": 1, "ended_at": 150.0}
    said = {name: {**failed, "log": RAISED + last} for name, last in sparse.get("said", {}).items()}
    given_ends = {**said, **sparse.get("nodes", {})}
    ends = [{"node": name, **filled_in(default_end, given_ends.get(name, {}))} for name in names]
    snapshots = {}
    for name, given in sparse.get("snapshots", {}).items():
        shots = [filled_in({**SHOT, "rank": 0}, shot) for shot in given.get("ranks", [])]
        snapshots[name] = {
            "at": 199.0,
            "left": [],
            "listeners": [],
            "half_open": [],
            "frozen": False,
            "unseen": {},
            **given,
            "ranks": shots,
        }
    records = sparse.get("records", {})
    shape: Any = {
        "schema": 1,
        "launch": launch,
        "ranks": ranks,
        "nodes": ends,
        "start": {name: record(both["start"]) for name, both in records.items() if "start" in both},
        "end": {name: record(both["end"]) for name, both in records.items() if "end" in both},
        "snapshots": snapshots,
        "agents": sparse.get("agents", {}),
        "findings": sparse.get("findings", []),
        "ran": sparse.get("ran", {}),
        "not_looked": sparse.get("not_looked", {}),
        "unanswered": sparse.get("unanswered", {}),
        "boots": sparse.get("boots", {}),
        "paths": sparse.get("paths", {}),
        "key": sparse.get("key", "00"),
    }
    return LaunchCase(shape)
