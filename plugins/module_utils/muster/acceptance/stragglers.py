"""Find stragglers: ranks that take longer than similar ranks for the same steps without communication."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.words import plural
from . import agreement, world
from .reports import finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .reports import Reports

# A rank is slow if it takes 1.2 times the median and lies outside the spread of the others. If ranks share cores,
# caches and hyper-threads have more influence: 1.5 times.
TIMES, TIMES_SHARED = 1.2, 1.5
TWICE = 2.0  # fails without a majority: the rate of the fastest rank is possible
THROTTLED_PART = 0.1  # of the time; a quota that is reached less often is not the cause

STRAGGLER = Check(
    "smoke.straggler",
    seen="sandbox",
    reads="each rank's time for steps without collectives and for preparing their data, in blocks of 0.1 s (only CPU "
    "time, and the least of each machine, if ranks share cores and no quota throttles them); clocks, quotas, load",
    fires=f"a rank takes more than {TIMES:g} times ({TIMES_SHARED:g} times if ranks share cores) as long as the "
    "median of its GPU model and lies more than three deviations (MAD) above the other ranks; or that much longer "
    f"than the fastest rank because of a quota or lowered clocks; or {TWICE:g} times as long as the fastest rank of "
    f"the model (fail from {TWICE:g} times the median or the fastest rank, otherwise warn). Different GPU models are "
    "not compared",
    fix="Check other processes, quotas, clocks and cooling of the node: each step waits for the slowest rank",
)
CHECKS = (STRAGGLER,)

STAGE = "stragglers"
KINDS = {"compute": "computes", "data": "prepares its data"}
# Milliseconds; shorter times are not compared, because the clock's resolution matters.
LEAST_MS = 0.2


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    if len(reports.places) == 1:
        yield STRAGGLER.skip("the launch has only one rank")
        return
    found = False
    for kind in KINDS:
        for rank, against, basis in slow(reports, kind):
            found = True
            yield finding(reports, kind, rank, against, basis)
    crowds = crowded(reports)
    if not found and len(crowds) == len(reports.places) and len(set(crowds.values())) == 1:
        why = str(reports.facts(STAGE)[0]["shares_cores"])[:100]
        yield STRAGGLER.skip(f"{why}, so their times are not compared; no CPU quota throttles them")
    elif not found:
        text = f"no straggler among {plural(len(reports.places), 'rank')}"
        yield reports.good(STRAGGLER, text, whole=len(times(reports, "compute")) == len(reports.places))


def finding(reports: Reports, kind: str, rank: int, against: float, basis: str) -> Said:
    mine = compared(reports, kind)[rank]
    why = reason(reports.facts(STAGE)[rank])
    text = f"{reports.named(rank)} {KINDS[kind]} {mine / against:.2g} times as long as {basis}"
    text += f" ({mine:.3g} against {against:.3g} ms per step){f': {why}' if why else ''}"
    say = STRAGGLER.fail if mine >= TWICE * against else STRAGGLER.warn
    return say(reports.places[rank].node, text, observed=f"{mine:.3g} ms", expected=f"about {against:.3g} ms")


def slow(reports: Reports, kind: str) -> Iterator[tuple[int, float, str]]:
    """Yield (slow rank, reference value in milliseconds, description of the reference value)."""
    facts = reports.facts(STAGE)
    told = {rank: mine for rank, mine in compared(reports, kind).items() if mine >= LEAST_MS or kind == "compute"}
    shared = any(said.get("shares_cores") for said in facts.values())
    least = TIMES_SHARED if shared else TIMES
    for group in agreement.by_model(told, models(reports)):
        middle = agreement.usual(group.values())
        fastest = min(group.values(), default=0.0)
        for rank, mine in group.items():
            if middle and agreement.outside(mine, group.values(), least):
                yield rank, middle, f"the median of {plural(len(group), 'rank')}"
            elif fastest and mine > least * fastest and (held_back(facts[rank]) or mine >= TWICE * fastest):
                yield rank, fastest, "the fastest rank"


def compared(reports: Reports, kind: str) -> dict[int, float]:
    """Return the times that are compared. Ranks that share the cores of one machine, which can be several nodes
    (containers), also share its caches and clocks: each counts with the least time of its machine."""
    told, crowds = times(reports, kind), crowded(reports)
    least: dict[float, float] = {}
    for rank, machine in crowds.items():
        if rank in told:
            least[machine] = min(told[rank], least.get(machine, told[rank]))
    return {rank: least[crowds[rank]] if rank in crowds else mine for rank, mine in told.items()}


def crowded(reports: Reports) -> dict[int, float]:
    """Return the machine of each rank on a CPU that shares cores and is not throttled by a quota."""
    machines = {rank: finite(said.get("machine")) for rank, said in reports.facts(STAGE).items() if waits(said)}
    return {rank: machine for rank, machine in machines.items() if machine is not None}


def waits(said: Mapping[str, Any]) -> bool:
    return bool(said.get("shares_cores")) and not isinstance(said.get("smi"), dict) and not quota_stops(said)


def times(reports: Reports, kind: str) -> dict[int, float]:
    """Return milliseconds per step by rank. The time that a rank waits for shared cores is excluded; the time that a
    CPU quota throttles it is included."""
    found = {}
    for rank, said in reports.facts(STAGE).items():
        wall, own = finite(said.get(f"{kind}_ms")), finite(said.get(f"{kind}_cpu_ms"))
        if waits(said):
            wall = own
        if wall is not None and wall > 0:
            found[rank] = wall
    return found


def models(reports: Reports) -> dict[int, str]:
    return {rank: str(said.get("device")) for rank, said in reports.facts(world.STAGE).items()}


def quota_stops(said: Mapping[str, Any]) -> bool:
    return (finite(said.get("throttled_part")) or 0.0) > THROTTLED_PART


def lowered(said: Mapping[str, Any]) -> list[str]:
    """Return the reasons why the clocks of the GPU are throttled."""
    smi = said.get("smi")
    told = smi.get("throttled") if isinstance(smi, dict) else None
    return [str(one)[:40] for one in told][:4] if isinstance(told, list) else []


def held_back(said: Mapping[str, Any]) -> bool:
    return quota_stops(said) or bool(lowered(said))


def reason(said: Mapping[str, Any]) -> str:
    """Return an observation that explains why the rank is slow; "" if there is none."""
    if quota_stops(said):
        quota, part = finite(said.get("quota")), finite(said.get("throttled_part")) or 0.0
        size = f" of {quota:.2g} CPUs" if quota else ""
        return f"a CPU quota{size} throttled the rank for {min(part, 1.0):.0%} of the time"
    if found := lowered(said):
        return f"the GPU clocks are lowered ({', '.join(found)})"
    smi = said.get("smi")
    now, most = (finite(smi.get(name)) for name in ("sm_mhz", "sm_max_mhz")) if isinstance(smi, dict) else (None, None)
    if now and most and now < 0.8 * most:
        return f"the GPU runs at {now:.0f} of {most:.0f} MHz"
    load, cores = finite(said.get("load")), finite(said.get("cores"))
    if load and cores and load > 2 * cores:
        return f"the load of the node is {load:.0f} on {plural(int(cores), 'core')}"
    return ""


def measured(reports: Reports) -> dict[str, Any]:
    told = times(reports, "compute")
    middle = median(told.values()) if told else None
    named = {rank for kind in KINDS for rank, _, _ in slow(reports, kind)}
    return {
        "median_ms": round(middle, 3) if middle is not None else None,
        "ranks": [
            {
                "rank": rank,
                "node": reports.places[rank].node,
                "local_rank": reports.places[rank].local_rank,
                "ms": mine,
                "ratio": round(mine / middle, 3) if middle else None,
                "slow": rank in named,
            }
            for rank, mine in told.items()
        ],
    }
