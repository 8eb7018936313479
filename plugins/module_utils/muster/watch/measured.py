"""Metrics of a node's own check for node_exporter's textfile collector (Prometheus text format 0.0.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..health.metrics import escaped, textfile
from ..verdict.finding import findings_in
from .answer import FAULT, OK, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..health.node import NodeHealth
    from .answer import NodeAnswer

STATUS = {OK: 0, FAULT: 2, UNKNOWN: 3}
HELP = {
    "muster_node_status": "Result of the node's own check: 0 ok, 2 fault, 3 unknown",
    "muster_node_check_seconds": "Duration of the node's own check",
    "muster_gpu_utilization_ratio": "Utilization of a GPU, 0 to 1",
    "muster_gpu_memory_used_bytes": "Memory in use on a GPU",
    "muster_gpu_memory_total_bytes": "Memory of a GPU",
    "muster_gpu_temperature_celsius": "Temperature of a GPU",
    "muster_gpu_power_watts": "Power draw of a GPU",
    "muster_gpu_xid_timestamp_seconds": "Time of the newest message with this Xid in the kernel log of this boot",
    "muster_launch_gpu": "GPUs in use by a launch (always 1)",
}
MIB = 1024**2


@dataclass
class Metric:
    """The samples of one metric: (labels, value)."""

    name: str
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {HELP[self.name]}.\n"
        yield f"# TYPE {self.name} gauge\n"
        for labels, value in self.samples:
            inside = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{inside}}} {shown(value)}\n" if inside else f"{self.name} {shown(value)}\n"


def shown(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def metrics(answer: NodeAnswer, health: NodeHealth) -> str:
    """Return the text of the metrics file. Values that were not read have no sample."""
    owner = {"owner": answer.owner, "hard": str(answer.hard).lower(), "form": answer.form}
    found = [
        Metric("muster_node_status", [(owner, STATUS[answer.status])]),
        Metric("muster_node_check_seconds", [({"form": answer.form}, answer.seconds)]),
        *_of_gpus(health["facts"]["gpu"]["gpus"]),
        Metric("muster_gpu_xid_timestamp_seconds", list(_xids(health["facts"]["kernel_log"], answer.when))),
        Metric("muster_launch_gpu", list(_launches(health["facts"]))),
    ]
    own = "".join(line for metric in found if metric.samples for line in metric.lines())
    return textfile(findings_in(health["verdict"]), answer.when) + own


def _of_gpus(gpus: list[dict[str, Any]]) -> Iterator[Metric]:
    # Name of the metric -> place of the value in the facts of a GPU, and its factor.
    read = {
        "muster_gpu_utilization_ratio": (("utilization",), 0.01),
        "muster_gpu_memory_used_bytes": (("memory", "used"), MIB),
        "muster_gpu_memory_total_bytes": (("memory", "total"), MIB),
        "muster_gpu_temperature_celsius": (("temperature", "gpu"), 1),
        "muster_gpu_power_watts": (("power", "draw"), 1),
    }
    for name, (place, factor) in read.items():
        values = [(_gpu(gpu), _value(gpu, place)) for gpu in gpus if not gpu["lost"]]
        yield Metric(name, [(labels, value * factor) for labels, value in values if value is not None])


def _value(gpu: Mapping[str, Any], place: tuple[str, ...]) -> float | None:
    value: Any = gpu
    for key in place:
        value = value[key]
    return None if value is None else float(value)


def _gpu(gpu: Mapping[str, Any]) -> dict[str, str]:
    return {"gpu": str(gpu["index"]), "uuid": str(gpu["uuid"] or ""), "model": str(gpu["name"] or "")}


def _xids(log: Mapping[str, Any], now: float) -> Iterator[tuple[dict[str, str], float]]:
    newest: dict[tuple[str, str], float] = {}
    for line in log["lines"]:
        if line["kind"] == "xid":
            key = (str(line["which"][0]), str(line["which"][1]))
            newest[key] = max(newest.get(key, 0.0), now - line["age"])
    for (slot, xid), when in sorted(newest.items()):
        yield {"slot": slot, "xid": xid}, round(when)


def _launches(facts: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the GPUs of each launch: the compute processes that belong to it."""
    ranks = {one["pid"]: one for one in facts["jobs"]["processes"] if one["launch"]}
    for gpu in facts["gpu"]["gpus"]:
        users = {
            (ranks[one["pid"]]["launch"], ranks[one["pid"]]["user"]) for one in gpu["processes"] if one["pid"] in ranks
        }
        for launch, user in sorted(users):
            yield {"launch": launch, "user": user, "gpu": str(gpu["index"])}, 1
