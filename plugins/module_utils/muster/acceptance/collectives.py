"""Check that collectives return exact results, and find the rank whose contribution is missing or wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.check import Check
from ..verdict.words import plural
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .reports import Reports

ALL_REDUCE = Check(
    "smoke.all_reduce",
    seen="sandbox",
    reads="all-reduce of integers as int64 and float32 (1 to 2^20 elements; in full mode up to the available memory) "
    "and as bfloat16 and float16 (sums up to 256 and 2048, which are exact), compared element by element; int64 "
    "totals, which the controller recomputes; all-reduce of random float32 values, compared with float64",
    fires="fail: a result is not exact, or the error of random values exceeds (n - 1) u times the sum of their "
    "absolute values, with u = 2^-24 (bound for any summation order: Higham, Accuracy and Stability of Numerical "
    "Algorithms, 4.2). The finding names the rank whose contribution is missing or doubled on every rank, otherwise "
    "the receiving rank",
    fix="Check the node's GPUs and links",
)
COLLECTIVES = Check(
    "smoke.collectives",
    seen="sandbox",
    reads="broadcast, all_gather, reduce_scatter, all_to_all and a send/recv ring, with int64 and float32 integers "
    "that encode position and rank (1 element or more), compared element by element",
    fires="fail: a result is not exact. The finding names the sending rank if its data is wrong on several other "
    "ranks, otherwise the receiving rank",
    fix="Check the node's GPUs and links",
)
CHECKS = (ALL_REDUCE, COLLECTIVES)

STAGE = "collectives"
PERIOD = 997  # as in the payload: at element i, rank r contributes (i mod 997 + 1) * (r + 1) to a reduction
REDUCED = ("all_reduce", "reduce_scatter")
MOST = 8  # findings


class Wrong(NamedTuple):
    """The wrong data that one rank received in a collective of one data type and size."""

    rank: int
    collective: str
    dtype: str
    size: int
    mismatches: int
    samples: tuple[Mapping[str, Any], ...]

    @property
    def what(self) -> str:
        return f"{self.collective} of {plural(self.size, f'{self.dtype} element')}"

    @property
    def example(self) -> str:
        sample = self.samples[0]
        return f"element {sample['place']} is {str(sample['got'])[:24]} instead of {str(sample['wanted'])[:24]}"


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    bad = [one for rank, said in reports.facts(STAGE).items() for one in wrong_of(rank, said)]
    blamed = list(findings(reports, bad))
    yield from blamed[:MOST]
    yield from totals(reports, {one.rank for one in bad if one.collective == "all_reduce"})
    yield from others(reports, any(one.collective != "all_reduce" for one in bad))


def integer(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else None


def listed(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def wrong_of(rank: int, said: Mapping[str, Any]) -> Iterator[Wrong]:
    for case in listed(said.get("cases")):
        for one in listed(case.get("wrong")):
            samples = tuple(
                sample for sample in listed(one.get("samples")) if {"place", "got", "wanted"} <= sample.keys()
            )
            size, mismatches = integer(one.get("size")), integer(one.get("mismatches"))
            if samples and size is not None and mismatches is not None:
                words = str(case.get("collective"))[:24], str(case.get("dtype"))[:24]
                yield Wrong(rank, *words, size, mismatches, samples)


def findings(reports: Reports, bad: list[Wrong]) -> Iterator[Said]:
    """Yield one finding per rank at fault and collective, with the first case and the number of cases."""
    cases: dict[tuple[str, str, int], list[Wrong]] = {}
    for one in bad:
        cases.setdefault((one.collective, one.dtype, one.size), []).append(one)
    told: dict[tuple[int, str], tuple[str, Wrong]] = {}
    count: dict[tuple[int, str], int] = {}
    # A sum of another type that is wrong on all ranks has the same cause, even if its pattern cannot be solved.
    solved = {case[0].collective: share[0] for case in cases.values() if (share := lost_share(reports, case))}
    for case in cases.values():
        name = case[0].collective
        if name in solved and len(case) == len(reports.places) and not lost_share(reports, case):
            count[solved[name], name] = count.get((solved[name], name), 0) + 1
            continue
        for rank, text, example in blame(reports, case):
            key = rank, example.collective
            told.setdefault(key, (text, example))
            count[key] = count.get(key, 0) + 1
    for (rank, collective), (text, example) in told.items():
        more = count[rank, collective] - 1
        check = ALL_REDUCE if collective == "all_reduce" else COLLECTIVES
        yield check.fail(
            reports.places[rank].node,
            f"{named(reports, rank)}: {text}: {example.example}" + (f"; {plural(more, 'more case')}" if more else ""),
            fix=f"Check the GPU and the links of local rank {reports.places[rank].local_rank}",
            observed=str(example.samples[0]["got"])[:64],
            expected=str(example.samples[0]["wanted"])[:64],
        )


def named(reports: Reports, rank: int) -> str:
    """Return the name of a rank, with the UUID of its GPU if the rank has one."""
    gpu = reports.facts("world").get(rank, {}).get("gpu_uuid")
    text = reports.named(rank)
    return f"{text[:-1]}, {gpu[:48]})" if isinstance(gpu, str) and gpu else text


def blame(reports: Reports, case: list[Wrong]) -> Iterator[tuple[int, str, Wrong]]:
    """Yield (rank at fault, text, example) for a collective of one data type and size."""
    first = case[0]
    if share := lost_share(reports, case):
        rank, how = share
        yield rank, f"contribution to {first.what} {how} on all {len(case)} ranks", first
        return
    if first.collective not in REDUCED:
        origins = {integer(sample.get("from")) for one in case for sample in one.samples}
        origin = origins.pop() if len(case) > 1 and len(origins) == 1 else None
        if origin is not None and origin in reports.places:
            yield origin, f"data sent in {first.what} is wrong on {len(case)} ranks", first
            return
    for one in case:
        yield one.rank, f"{one.what} is wrong in {plural(one.mismatches, 'element')}{hint(reports, one)}", one


def lost_share(reports: Reports, case: list[Wrong]) -> tuple[int, str] | None:
    """Return (rank, "is missing" or "is doubled") if all ranks received a sum in which the contribution of this rank is
    missing or doubled; otherwise None."""
    if case[0].collective not in REDUCED or not len(case) == len(reports.places) > 1:
        return None
    shares = {missing(one, len(reports.places)) for one in case}
    return shares.pop() if len(shares) == 1 else None


def missing(wrong: Wrong, world_size: int) -> tuple[int, str] | None:
    """Return (rank, "is missing" or "is doubled") for the contribution that explains a wrong sum, if at least two
    elements agree; otherwise None."""
    found = set()
    for sample in wrong.samples:
        place, got, wanted = (sample[name] for name in ("place", "got", "wanted"))
        if not all(isinstance(value, int) for value in (place, got, wanted)):
            return None
        # At every element, the expected value is the pattern times n (n + 1) / 2.
        times, rest = divmod(wanted, world_size * (world_size + 1) // 2)
        rank, odd = divmod(wanted - got, times) if times else (0, 1)
        if rest or odd or not 1 <= abs(rank) <= world_size:
            return None
        found.add((abs(rank) - 1, "is missing" if rank > 0 else "is doubled"))
    return found.pop() if len(found) == 1 and len(wrong.samples) > 1 else None


def hint(reports: Reports, wrong: Wrong) -> str:
    """Return an explanation of the wrong value if the value matches a known pattern; else ""."""
    count = len(reports.places)
    if wrong.collective in REDUCED:
        share = missing(wrong, count)
        return f", as if the contribution of rank {share[0]} {share[1].replace('is', 'were', 1)}" if share else ""
    got = wrong.samples[0]["got"]
    if not isinstance(got, int) or not 0 <= got < PERIOD * count * count:
        return ""
    origin, to = divmod(got // PERIOD, count)
    if (origin, to) == (wrong.samples[0].get("from"), wrong.rank):
        return f"; another part of the data of rank {origin} arrived instead"
    return (
        f"; the data of rank {origin} for rank {to} arrived instead"
        if wrong.collective in ("all_to_all", "ring")
        else (f"; the data of rank {origin} arrived instead")
    )


def expected_sum(size: int, world_size: int) -> int:
    """Return the exact sum of all elements of the reduced pattern, as an integer."""
    whole, rest = divmod(size, PERIOD)
    pattern = whole * (PERIOD * (PERIOD + 1) // 2) + rest * (rest + 1) // 2
    return pattern * (world_size * (world_size + 1) // 2)


def totals(reports: Reports, told: set[int]) -> Iterator[Said]:
    """Check that the integer all-reduce is exact in every element on every rank. The expected total is recomputed
    here."""
    sizes: dict[int, set[int]] = {}
    found = bool(told)
    for rank, said in reports.facts(STAGE).items():
        node = reports.places[rank].node
        random = said.get("random")
        outside = integer(random.get("mismatches")) if isinstance(random, dict) else None
        if outside and rank not in told:
            found = True
            where = plural(outside, "element")
            text = f"{named(reports, rank)}: the error of random float32 sums exceeds the bound in {where}"
            yield ALL_REDUCE.fail(node, text, fix="")
        reduced = listed(said.get("all_reduce"))
        for one in reduced if rank not in told else ():
            size, mismatches = integer(one.get("size")), integer(one.get("mismatches"))
            if size is None or mismatches is None:
                continue
            wanted = expected_sum(size, reports.plan.world_size)
            sizes.setdefault(size, set()).add(rank)
            if mismatches or one.get("sum") != wanted:
                found = True
                where = f"in {plural(mismatches, 'element')}" if mismatches else "in the total"
                text = f"{named(reports, rank)}: all_reduce of {plural(size, 'integer')} is wrong {where}"
                yield ALL_REDUCE.fail(node, text, fix="", observed=str(one.get("sum"))[:64], expected=str(wanted))
        if not reduced:
            found = True
            yield ALL_REDUCE.fail(node, f"{named(reports, rank)} reported no all-reduce", fix="")
    if not found:
        text = f"integer all-reduce exact ({', '.join(str(size) for size in sorted(sizes))} elements)"
        whole = bool(sizes) and all(len(ranks) == len(reports.places) for ranks in sizes.values())
        yield reports.good(ALL_REDUCE, text, whole=whole)


def others(reports: Reports, wrong: bool) -> Iterator[Said]:
    """Yield a pass for each collective other than all-reduce, and a skip for each collective that did not run."""
    exact = [case for case in measured(reports)["cases"] if case["collective"] != "all_reduce"]
    if not any("cases" in said for said in reports.facts(STAGE).values()):
        yield COLLECTIVES.skip("no rank reported collectives other than all-reduce")
    elif not wrong:
        names = ", ".join(dict.fromkeys(case["collective"] for case in exact))
        # A rank's list does not have the collectives that the rank did not reach.
        whole = bool(exact) and reports.whole(STAGE, "cases")
        yield reports.good(COLLECTIVES, f"{names} exact" if exact else "no other collective ran", whole=whole)
    untried: dict[str, str] = {}
    for said in reports.facts(STAGE).values():
        not_tried = said.get("not_tried")
        untried.update(not_tried if isinstance(not_tried, dict) else {})
    for name, why in list(untried.items())[:MOST]:
        yield COLLECTIVES.skip(f"{str(name)[:40]} was not run: {str(why)[:160]}")


def measured(reports: Reports) -> dict[str, Any]:
    """Return the part of smoke.json about collectives: each collective and data type with its sizes, and whether the
    results were exact on all ranks that reported."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for said in reports.facts(STAGE).values():
        for case in listed(said.get("cases")):
            name, dtype, tried = str(case.get("collective"))[:24], str(case.get("dtype"))[:24], case.get("sizes")
            sizes = [size for one in (tried if isinstance(tried, list) else ()) if (size := integer(one)) is not None]
            if not sizes:
                continue
            entry = found.setdefault((name, dtype), {"collective": name, "dtype": dtype, "sizes": sizes, "exact": True})
            entry["exact"] = entry["exact"] and not listed(case.get("wrong"))
    return {"cases": list(found.values())}
