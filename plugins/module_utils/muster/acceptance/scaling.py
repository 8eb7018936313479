"""Weak scaling: what all ranks train together, against so many times what one of them trains alone."""

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
    reads="samples a second of one rank alone, and of all together with as many samples for each",
    fires="the efficiency is below ddp_smoke_scaling_floor, which is 0 unless it is set: how well it scales depends on "
    "the model (fail). Skipped where ranks share cores",
    fix="Look at the bandwidth of the collectives and at stragglers, or lower ddp_smoke_scaling_floor",
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
        yield SCALING.unknown(reports.head, "no rank reported how many samples it trains", fix="")
        return
    count = plural(len(reports.places), "rank")
    text = f"weak scaling {efficiency:.0%}: {told['alone']:.0f} samples/s alone"
    text += f", {told['together']:.0f} by {count} together"
    if efficiency < floor:
        more: dict[str, Any] = {"observed": f"{efficiency:.2f}", "expected": f"{floor:.2f}"}
        yield SCALING.fail(reports.head, f"{text}, below {floor:.0%}", evidence=evidence(told), **more)
    else:
        yield SCALING.passed(reports.head, text)


def measured(reports: Reports) -> dict[str, Any]:
    """Of the first rank that told it: they have told each other."""
    for said in reports.facts(STAGE).values():
        alone, together = finite(said.get("alone")), finite(said.get("together"))
        if alone and alone > 0 and together is not None:
            efficiency = round(together / (alone * len(reports.places)), 4)
            return {"alone": alone, "together": together, "efficiency": efficiency, **bound(reports, said, alone)}
    return {"alone": None, "together": None, "efficiency": None}


def bound(reports: Reports, said: Any, alone: float) -> dict[str, Any]:
    """What the measured bandwidth leaves at most, were nothing overlapped: a step's own time, then its all-reduce."""
    size, batch, rate = finite(said.get("gradient_bytes")), finite(said.get("batch")), bus_gbps(reports)
    if not size or not batch or not rate:
        return {}
    count = len(reports.places)
    reduce = 2 * (count - 1) / count * size / (rate * 1e9)
    return {"bound": round((batch / alone) / (batch / alone + reduce), 4), "busbw": rate}


def bus_gbps(reports: Reports) -> float | None:
    """The best busbw of all ranks' all-reduce, where the stage bandwidth has told it."""
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
    text = f"all-reduce at {told['busbw']:.3g} GB/s (busbw) without overlap allows {told['bound']:.0%}"
    return [{"source": "bandwidth of this test", "text": text}]
