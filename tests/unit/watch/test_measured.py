"""The metrics of a node's own check."""

from __future__ import annotations

from typing import Any

from looked_at import looked
from muster.health.node import judge_looks
from muster.watch.answer import answer
from muster.watch.measured import metrics

WHEN = 1_795_000_000.0
GPU = {
    "index": 1,
    "name": "H100",
    "uuid": "GPU-1",
    "lost": False,
    "utilization": 87,
    "memory": {"total": 81559, "used": 1024, "free": None},
    "temperature": {"gpu": 61.0},
    "power": {"draw": None},
    "processes": [{"pid": 7}, {"pid": 8}, {"pid": 9}],
}


def text(**changes: Any) -> list[str]:
    looks, request = looked({})
    health = judge_looks(looks, request)
    health["facts"].update(changes)
    given = answer(health["verdict"], node="node1", form="short", when=WHEN, seconds=0.5)
    return metrics(given, health).splitlines()


def test_values_of_gpus_have_samples_only_if_they_were_read() -> None:
    lines = text(gpu={"gpus": [GPU, {**GPU, "index": 2, "lost": True}]}, jobs={"processes": []})
    labels = '{gpu="1",uuid="GPU-1",model="H100"}'
    assert [line for line in lines if line.startswith("muster_gpu_")] == [
        f"muster_gpu_utilization_ratio{labels} 0.87",
        f"muster_gpu_memory_used_bytes{labels} 1073741824",
        f"muster_gpu_memory_total_bytes{labels} 85520809984",
        f"muster_gpu_temperature_celsius{labels} 61",
    ]
    assert 'muster_node_status{owner="",hard="false",form="short"} 0' in lines
    assert "muster_check_timestamp_seconds 1795000000" in lines


def test_each_launch_has_its_gpus_and_each_xid_its_newest_time() -> None:
    ranks = [{"pid": pid, "launch": "20261128-1", "user": 'a"b'} for pid in (7, 8)]
    xids = [{"kind": "xid", "which": ["0000:05:00", "79", None], "age": age, "text": ""} for age in (300, 20)]
    log = {"lines": [*xids, {"kind": "oom", "which": ["python"], "age": 1, "text": ""}]}
    lines = text(gpu={"gpus": [GPU]}, jobs={"processes": ranks}, kernel_log=log)
    assert [line for line in lines if line.startswith(("muster_launch", "muster_gpu_xid"))] == [
        'muster_gpu_xid_timestamp_seconds{slot="0000:05:00",xid="79"} 1794999980',
        'muster_launch_gpu{launch="20261128-1",user="a\\"b",gpu="1"} 1',
    ]


def test_every_metric_has_a_type() -> None:
    lines = text(gpu={"gpus": [GPU]}, jobs={"processes": []})
    names = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    assert names == {line.split()[2] for line in lines if line.startswith("# TYPE")}
