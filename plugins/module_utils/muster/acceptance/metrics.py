"""Extract single values from an acceptance test, for the comparison of runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.printable import printable
from ..verdict.words import plural
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONGEST = 80  # characters of a name reported by a node


class MetricKind(NamedTuple):
    """A kind of measurement. accelerated, bare: the fraction that a run may lose without a finding, on GPUs and on
    CPUs; None if not compared.
    """

    title: str
    unit: str
    higher_is_better: bool
    accelerated: float
    bare: float | None


# On GPUs: SuperBench assumes 5 % for the variance of one machine's results
# (https://microsoft.github.io/superbenchmark/docs/user-tutorial/data-diagnosis); twice that for shared links or short
# work, and 15 % for the small training of quick mode, whose steps take milliseconds. On CPUs, the ranks share cores,
# caches and the kernel's network stack with each other and with other processes: a run beside another run takes up to
# twice as long, and single small messages up to ten times as long.
KINDS = {
    "gemm": MetricKind("GEMM rate", "TFLOP/s", True, 0.05, 0.5),
    "memory": MetricKind("memory bandwidth", "GB/s", True, 0.05, 0.5),
    "host_to_device": MetricKind("host-to-device rate", "GB/s", True, 0.10, None),
    "busbw": MetricKind("busbw", "GB/s", True, 0.10, 0.5),
    "latency": MetricKind("latency", "µs", False, 0.5, None),
    "compute": MetricKind("compute time of a step", "ms", False, 0.10, 0.5),
    "samples": MetricKind("throughput", "samples/s", True, 0.15, 0.5),
    "efficiency": MetricKind("scaling efficiency", "", True, 0.10, 0.5),
}
LEVELS = {"all": "over all ranks", "node": "inside {}", "across": "across the nodes"}


class Metric(NamedTuple):
    """One value. key: identifies the value in every run with this layout. where: what was measured, for messages. node:
    "" if the value covers all nodes. gpu: the UUID of the measured GPU."""

    kind: str
    key: str
    where: str
    node: str
    gpu: str
    value: float


def metrics(smoke: Mapping[str, Any]) -> dict[str, Metric]:
    """Return the metrics by "<kind> <key>". Values that are missing, not numbers or not positive are left out."""
    found: dict[str, Metric] = {}
    for one in (*_of_gpus(smoke), *_of_links(smoke), *_of_compute(smoke), *_of_all(smoke)):
        found.setdefault(f"{one.kind} {one.key}", one)
    return found


def drop_of(kind: str, before: float, now: float) -> float:
    """Return the lost fraction, such as 0.07 for 7 %. It is negative for an improvement."""
    ratio = now / before if KINDS[kind].higher_is_better else before / now
    return 1 - ratio


def told(kind: str, value: float) -> str:
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {KINDS[kind].unit}".rstrip()


def rows(of: Any, name: str) -> list[Mapping[str, Any]]:
    """Return the entries of a list in untrusted input that are mappings."""
    value = of.get(name) if isinstance(of, dict) else None
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def positive(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and math.isfinite(found) and found > 0 else None


def word(value: Any) -> str:
    return printable(str(value))[:LONGEST] if isinstance(value, (str, int)) else ""


def _metric(kind: str, key: str, where: str, value: Any, node: str = "", gpu: str = "") -> Iterator[Metric]:
    found = positive(value)
    if found is not None:
        yield Metric(kind, key, where, node, gpu, found)


def _place(rank: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return (key, name for messages, node, GPU UUID) of a rank."""
    node, local, gpu = word(rank.get("node")), word(rank.get("local_rank")), word(rank.get("gpu_uuid"))
    where = f"rank {word(rank.get('rank'))} ({node}, local rank {local}{f', {gpu}' if gpu else ''})"
    return f"{node}/{local}", where, node, gpu


def _of_gpus(smoke: Mapping[str, Any]) -> Iterator[Metric]:
    for rank in rows(smoke.get("device"), "ranks"):
        key, where, node, gpu = _place(rank)
        for kind, name in (("gemm", "gemm_tflops"), ("memory", "memory_gbps"), ("host_to_device", "h2d_gbps")):
            yield from _metric(kind, key, where, rank.get(name), node, gpu)


def _of_links(smoke: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the busbw at the largest size and the latency at the smallest size of each level."""
    for curve in rows(smoke.get("bandwidth"), "curves"):
        points = [one for one in rows(curve, "points") if positive(one.get("bytes"))]
        level, node = word(curve.get("level")), word(curve.get("node"))
        if not points or level not in LEVELS:
            continue
        collective = word(curve.get("collective"))
        key = " ".join(part for part in (collective, level, node if level == "node" else "") if part)
        where = f"{collective} {LEVELS[level].format(node)}"
        at = node if level == "node" else ""
        largest = max(points, key=lambda one: one["bytes"])
        smallest = min(points, key=lambda one: one["bytes"])
        yield from _metric("busbw", key, where, largest.get("busbw"), at)
        seconds = positive(smallest.get("seconds"))
        yield from _metric("latency", key, where, seconds and seconds * 1e6, at)


def _of_compute(smoke: Mapping[str, Any]) -> Iterator[Metric]:
    for rank in rows(smoke.get("stragglers"), "ranks"):
        key, where, node, gpu = _place(rank)
        yield from _metric("compute", key, where, rank.get("ms"), node, gpu)


def _of_all(smoke: Mapping[str, Any]) -> Iterator[Metric]:
    count = number(smoke.get("world_size"))
    ranks = f"all {plural(int(count), 'rank')}" if count is not None and math.isfinite(count) else "all ranks"
    scaling = smoke.get("scaling")
    yield from _metric("samples", "all", ranks, smoke.get("samples_per_second"))
    if isinstance(scaling, dict):
        yield from _metric("efficiency", "all", ranks, scaling.get("efficiency"))
