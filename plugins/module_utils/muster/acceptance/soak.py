"""Evaluate a soak test of several hours. It detects silent data corruption, overheating, ECC errors and falling
rates."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.words import plural
from .device import named
from .reports import finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .reports import Reports

KEPT = 300  # points of a rank
ENDS = 10  # the first and the last tenth are compared
FEWEST = 2 * ENDS  # points, so that a tenth has at least two
DROP, FALL = 0.9, 0.7
THROTTLED_PART = 0.1

CORRUPT = Check(
    "smoke.soak",
    seen="sandbox",
    reads="training steps replayed from the same state, repeated matrix products, and integer all-reduces, in each "
    "round of a soak test",
    fires="a result differs: a device or link silently produces wrong data (fail)",
    fix="Remove the node from launches and run the long DCGM diagnostics on it (dcgmi diag -r 3)",
)
HEAT = Check(
    "smoke.soak_clocks",
    seen="stand-in",
    reads="GPU temperature and clock throttle reasons during a soak test",
    fires="in more than "
    f"{THROTTLED_PART:.0%} of the samples, heat, power brake or hardware slowdown lowered the clocks (warn)",
    fix="Check the cooling and the power supplies of the node",
)
ECC = Check(
    "smoke.soak_ecc",
    seen="stand-in",
    reads="the ECC error counters at the beginning and the end of a soak test",
    fires="new uncorrected errors (fail) or corrected errors (warn)",
    fix="Check the node's GPUs: nvidia-smi -q -d ECC,ROW_REMAPPER",
)
RATE = Check(
    "smoke.soak_rate",
    seen="stand-in",
    reads="samples per second of each rank in the first and the last tenth of a soak test",
    fires=f"the rate in the last tenth is below {DROP:.0%} (warn) or {FALL:.0%} (fail) of the rate in the first. "
    "Skipped if ranks share cores",
    fix="Check temperature and clocks in the time series of the soak test (smoke.json)",
)
CHECKS = (CORRUPT, HEAT, ECC, RATE)

STAGE = "soak"


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    yield from corrupt(reports)
    points = points_of(reports)
    yield from heat(reports, points)
    yield from ecc(reports, points)
    yield from rate(reports, points)


def corrupt(reports: Reports) -> Iterator[Said]:
    found = False
    for rank, said in reports.facts(STAGE).items():
        told = said.get("differences")
        for one in told[:3] if isinstance(told, list) else []:
            found = True
            wrong = one if isinstance(one, dict) else {}
            text = f"{named(reports, rank)}: {str(wrong.get('text') or 'a result differs')[:200]}"
            yield CORRUPT.fail(reports.places[rank].node, f"{text} (round {str(wrong.get('round'))[:20]})")
    if not found:
        rounds = rounds_of(reports)
        text = f"{plural(min(rounds, default=0), 'round')}: replayed steps, products and sums are bitwise equal"
        yield reports.good(CORRUPT, text, whole=len(rounds) == len(reports.places))


def rounds_of(reports: Reports) -> list[int]:
    """Return the number of rounds that each rank compared, if the rank reported the number."""
    told = [(finite(said.get("rounds")), said.get("differences")) for said in reports.facts(STAGE).values()]
    return [int(rounds) for rounds, differences in told if rounds and rounds > 0 and isinstance(differences, list)]


def points_of(reports: Reports) -> dict[int, list[Mapping[str, Any]]]:
    """Return the periodic reports of each rank, in order. These reports exist even if the soak test was interrupted."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for event in reports.events:
        if (
            event.get("event") == STAGE
            and event["from_rank"] in reports.places
            and finite(event.get("seconds")) is not None
        ):
            found.setdefault(event["from_rank"], []).append(event)
    return dict(sorted(found.items()))


def heat(reports: Reports, points: Mapping[int, list[Mapping[str, Any]]]) -> Iterator[Said]:
    found, looked = False, 0
    for rank, series in points.items():
        told = [one["throttled"] for one in series if isinstance(one.get("throttled"), list)]
        looked += len(told)
        lowered = [reasons for reasons in told if reasons]
        if told and len(lowered) > THROTTLED_PART * len(told):
            found = True
            hottest = max(
                (value for one in series if (value := finite(one.get("temperature_c"))) is not None), default=None
            )
            why = ", ".join(sorted({str(reason)[:40] for reasons in lowered for reason in reasons}))[:200]
            part = len(lowered) / len(told)
            text = f"{named(reports, rank)}: GPU clocks were lowered in {part:.0%} of the samples ({why})"
            yield HEAT.warn(
                reports.places[rank].node, text + (f", at up to {hottest:.0f} °C" if hottest is not None else "")
            )
    if not looked:
        yield HEAT.skip("no GPU reported clock throttle reasons")
    elif not found:
        yield HEAT.passed(reports.head, "heat and power did not lower the GPU clocks")


def ecc(reports: Reports, points: Mapping[int, list[Mapping[str, Any]]]) -> Iterator[Said]:
    found, looked = False, set()
    for rank, series in points.items():
        for kind, say in (("uncorrected", ECC.fail), ("corrected", ECC.warn)):
            told = [value for one in series if (value := finite(one.get(f"ecc_{kind}"))) is not None and value >= 0]
            looked |= {rank} if told else set()
            if told and told[-1] > told[0]:
                found = True
                added = plural(int(told[-1] - told[0]), f"{kind} ECC error")
                text = f"{named(reports, rank)}: {added} since the start"
                yield say(reports.places[rank].node, text, observed=f"{told[-1]:.0f}", expected=f"{told[0]:.0f}")
    if not looked:
        yield ECC.skip("no GPU reported ECC error counters")
    elif not found:
        yield ECC.passed(reports.head, f"no new ECC errors on {plural(len(looked), 'GPU')}")


def rate(reports: Reports, points: Mapping[int, list[Mapping[str, Any]]]) -> Iterator[Said]:
    facts = reports.facts(STAGE)
    shared = next((str(said["shares_cores"])[:100] for said in facts.values() if said.get("shares_cores")), "")
    told = {rank: rates_of(series) for rank, series in points.items()}
    long = {rank: rates for rank, rates in told.items() if len(rates) >= FEWEST}
    if shared or not long:
        yield RATE.skip(shared or f"no rank reported {FEWEST} or more measurements")
        return
    found = False
    for rank, rates in long.items():
        part = len(rates) // ENDS
        first, last = median(rates[:part]), median(rates[-part:])
        if last < DROP * first:
            found = True
            say = RATE.fail if last < FALL * first else RATE.warn
            text = f"{named(reports, rank)}: {first:.0f} samples/s in the first tenth"
            text += f", {last:.0f} in the last tenth ({last / first:.0%})"
            yield say(reports.places[rank].node, text, observed=f"{last:.0f}", expected=f"{DROP * first:.0f}")
    if not found:
        yield reports.good(RATE, "no rank became slower", whole=set(long) == set(reports.places))


def rates_of(series: list[Mapping[str, Any]]) -> list[float]:
    return [value for one in series if (value := finite(one.get("samples_per_second"))) is not None and value > 0]


def measured(reports: Reports) -> dict[str, Any]:
    """Return the time series and the outcome. A soak test without a final report was stopped."""
    points, rounds = points_of(reports), rounds_of(reports)
    if not rounds:
        rounds = [int(value) for series in points.values() if (value := finite(series[-1].get("round"))) is not None]
    ended = {str(said.get("ended"))[:20] for said in reports.facts(STAGE).values()}
    return {
        "series": [shown(reports, rank, one) for rank, series in points.items() for one in thinned(series)],
        "rounds": min(rounds, default=0),
        "ended": "fault" if "fault" in ended else "time" if ended == {"time"} else "stop",
    }


def shown(reports: Reports, rank: int, one: Mapping[str, Any]) -> dict[str, Any]:
    told = one.get("throttled")
    return {
        "seconds": finite(one.get("seconds")),
        "rank": rank,
        "node": reports.places[rank].node,
        "samples_per_second": finite(one.get("samples_per_second")),
        "temperature_c": finite(one.get("temperature_c")),
        "throttled": [str(reason)[:40] for reason in told[:4]] if isinstance(told, list) else None,
        "ecc": {kind: finite(one.get(f"ecc_{kind}")) for kind in ("corrected", "uncorrected")},
    }


def thinned(series: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return at most KEPT evenly spaced points. The first and the last point are always included."""
    if len(series) <= KEPT:
        return series
    return [series[round(place * (len(series) - 1) / (KEPT - 1))] for place in range(KEPT)]
