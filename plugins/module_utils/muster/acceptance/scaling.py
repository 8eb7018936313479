"""Evaluate weak scaling: the rate of all ranks together is compared with the rate of one rank times the number of
ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.words import plural
from .reports import finite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.check import Said
    from .reports import Reports

SCALING = Check(
    "smoke.scaling",
    seen="stand-in",
    reads="samples per second of one rank alone, and of all ranks together with the same batch per rank",
    fires="the efficiency is below ddp_smoke_scaling_floor (fail). The default is 0, because scaling depends on the "
    "model. Skipped if ranks share cores",
    fix="Check the bandwidth of the collectives, check for stragglers, or lower ddp_smoke_scaling_floor",
)
CHECKS = (SCALING,)

STAGE = "scaling"


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    whys = [report.why for report in reports.stages.get(STAGE, {}).values() if report.status == "skipped"]
    if whys:
        yield SCALING.skip(whys[0][:200])
        return
    told = measured(reports)
    efficiency, floor = told["efficiency"], reports.bounds.scaling_floor
    if efficiency is None:
        yield SCALING.unknown(reports.head, "no rank reported its samples per second", fix="")
        return
    count = plural(len(reports.places), "rank")
    text = f"weak scaling {efficiency:.0%}: {told['alone']:.0f} samples/s by one rank"
    text += f", {told['together']:.0f} by {count} together"
    if efficiency < floor:
        more: dict[str, Any] = {"observed": f"{efficiency:.2f}", "expected": f"{floor:.2f}"}
        yield SCALING.fail(reports.head, f"{text}, below {floor:.0%}", evidence=evidence(told), **more)
    else:
        yield SCALING.passed(reports.head, text)


def measured(reports: Reports) -> dict[str, Any]:
    """Return the values of the first rank that reported them. The ranks exchange these values, so all ranks report the
    same."""
    for said in reports.facts(STAGE).values():
        alone, together = finite(said.get("alone")), finite(said.get("together"))
        if alone and alone > 0 and together is not None:
            efficiency = round(together / (alone * len(reports.places)), 4)
            return {"alone": alone, "together": together, "efficiency": efficiency, **bound(reports, said, alone)}
    return {"alone": None, "together": None, "efficiency": None}


def bound(reports: Reports, said: Any, alone: float) -> dict[str, Any]:
    """Return the efficiency that the measured bandwidth allows if computation and communication do not overlap: each
    step is followed by its all-reduce."""
    size, batch, rate = finite(said.get("gradient_bytes")), finite(said.get("batch")), bus_gbps(reports)
    if not size or not batch or not rate:
        return {}
    count = len(reports.places)
    reduce = 2 * (count - 1) / count * size / (rate * 1e9)
    return {"bound": round((batch / alone) / (batch / alone + reduce), 4), "busbw": rate}


def bus_gbps(reports: Reports) -> float | None:
    """Return the best all-reduce busbw over all ranks in GB/s; None if the bandwidth stage did not measure it."""
    found = []
    for said in reports.facts("bandwidth").values():
        curves = said.get("curves")
        for curve in curves if isinstance(curves, list) else []:
            if isinstance(curve, dict) and (curve.get("collective"), curve.get("level")) == ("all_reduce", "all"):
                points = curve.get("points")
                found += [finite(point.get("busbw")) for point in points or [] if isinstance(point, dict)]
    return max((rate for rate in found if rate), default=None)


def evidence(told: dict[str, Any]) -> list[dict[str, str]]:
    if "bound" not in told:
        return []
    text = f"all-reduce at {told['busbw']:.3g} GB/s (busbw) without overlap allows an efficiency of {told['bound']:.0%}"
    return [{"source": "bandwidth in this test", "text": text}]
