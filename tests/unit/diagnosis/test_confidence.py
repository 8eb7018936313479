"""Confidence is earned by checks: on a healthy cluster, the line that suggests a cause never confirms it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import CONFIRMED, decide
from muster.diagnosis.texts import TEXTS
from sparse import case_of, failed_rank
from test_no_wrong_blame import NODES, PROBES

if TYPE_CHECKING:
    from muster.diagnosis.evidence import Text
    from muster.diagnosis.model import Cause

# These causes are what a library found and printed. No check can refute them yet, so they are likely at most.
BY_THEIR_LINE = {
    *("program.bytes", "program.other_model", "program.unused_parameters", "program.ready_twice", "program.no_group"),
    *("program.checkpoint.prefix", "program.checkpoint.keys", "program.checkpoint.sizes", "program.thread_left"),
    *("program.device_twice", "program.device_assert", "program.forked", "program.devices_mixed"),
    *("program.device_type", "program.other_device", "program.torch_for_cpus", "process.worker"),
    *("gpu.number", "gpu.none_seen", "gpu.memory.full"),
    *("process.missing.file", "process.missing.permission", "process.missing.library"),
}


LISTENER = {
    "port": 29500,
    "address": "*",
    "pid": 4000,
    "user": "muster",
    "command": "python torchrun",
    "unit": "",
    "started": 101.0,
}


def node(number: int) -> dict[str, Any]:
    """Return the record of a node at which every check finds nothing."""
    address = f"192.0.2.{number}"
    interface = {"up": True, "carrier": True, "mtu": 1500, "kind": "physical", "counters": {"carrier_changes": 1}}
    gpus = [
        {
            "index": index,
            "uuid": f"GPU-{number}-{index}",
            "name": "A",
            "memory_used": 0,
            "memory_total": 80 << 30,
            "ecc": 0,
            "processes": [],
        }
        for index in range(2)
    ]
    disks = [
        {"use": use, "path": path, "type": "ext4", "free": 1 << 40, "total": 1 << 41, "inodes_free": 1 << 20}
        for use, path in (("work", "/"), ("shm", "/dev/shm"))
    ]
    return {
        "hostname": f"node{number}",
        # eth7 is the interface that the examples of texts name.
        "interfaces": {
            name: {**interface, "addresses": [each]} for name, each in (("eth0", address), ("eth7", f"10.0.0.{number}"))
        },
        "routes": {
            other: {"interface": "eth0", "source": address, "gateway": "", "error": ""}
            for other in NODES
            if other != f"node{number}"
        },
        "names": {f"node{number}": [address]},
        "program": {
            "argv": ["torchrun", "--nnodes=3", f"--node-rank={number - 1}", "--master-addr=192.0.2.1", "train.py"],
            "digests": {"script": "aa", "code": "bb"},
            "versions": {"torch": "2.13.0", "nccl": "2.28.9", "python": "3.12", "muster_environment": "cc"},
            "environment": {"DATA_ROOT": "dd"},
        },
        "limits": {"max_open_files": [None, None], "max_locked_memory": [None, None]},
        "counters": {
            "tcp.RetransSegs": 0,
            "tcp.OutSegs": 9,
            "conntrack.count": 1,
            "conntrack.max": 99,
            "vm.oom_kill": 0,
        },
        "unit": {},
        "memory": {"total": 8 << 40, "available": 6 << 40, "swap_free": 0},
        "disks": [{**one, "read_only": False} for one in disks],
        "kernel": [],
        "gpus": gpus,
        "fabric": {"mlx5_0/1": {"state": "4: ACTIVE", "link_downed": "0"}},
    }


def healthy() -> dict[str, Any]:
    """Return the evidence of a launch on healthy nodes, all of which were checked."""
    return {
        "records": {name: {"start": node(number), "end": node(number)} for number, name in enumerate(NODES, 1)},
        "snapshots": {
            name: {
                "ranks": [{"rank": rank, "local_rank": rank % 2} for rank in (2 * number, 2 * number + 1)],
                "listeners": [LISTENER] if name == NODES[0] else [],
            }
            for number, name in enumerate(NODES)
        },
        "ran": {name: [*PROBES, *(f"peer:{other}" for other in NODES if other != name)] for name in NODES},
    }


def told_by(text: Text, speaker: str) -> dict[str, Any]:
    """Return the evidence that a rank, or the launcher of a node, ended with the example of a text."""
    if speaker == "launcher":
        return {**healthy(), "said": {"node2": text.example}}
    return {**healthy(), "ranks": {3: failed_rank(3, text.example.lstrip())}}


@pytest.mark.parametrize("speaker", ["rank", "launcher"])
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.id)
def test_line_alone_confirms_nothing(text: Text, speaker: str) -> None:
    decided = decide(case_of(told_by(text, speaker)), CAUSES)
    assert decided.word != CONFIRMED, [one.cause.id for one in decided.causes]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_observation_could_refute_a_cause(cause: Cause) -> None:
    """Without a check, a cause is possible at most, or a comparison that a library printed."""
    checks = [one for one in (*cause.confirm, *cause.support, *cause.refute) if not one.by_words]
    assert checks or not cause.decisive or cause.id in BY_THEIR_LINE
