"""Collectives, exactly right; and when one is not, whose contribution is missing or wrong."""

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
    reads="all-reduces of int64 and float32 integers (1 to 2^20 elements, in full to what fits), of bfloat16 and "
    "float16 whose sums are exact (up to 256 and 2048), compared place by place; the totals of int64 are computed here "
    "once more. Random float32 against float64",
    fires="fail: one is not exact, or random values are outside (n - 1) u of the sum of their absolute values, u = "
    "2^-24, which holds in any order (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). The rank is named "
    "whose contribution every rank lacks or has twice, else the one that received it",
    fix="Look at the node's GPUs and links",
)
COLLECTIVES = Check(
    "smoke.collectives",
    seen="sandbox",
    reads="broadcast, all_gather, reduce_scatter, all_to_all and a ring of send and recv, of int64 and float32 "
    "integers that say their place and rank, from 1 element; compared place by place",
    fires="fail: one is not exact. The rank is named whose piece arrived wrong on several others, else the one that "
    "received it",
    fix="Look at the node's GPUs and links",
)
CHECKS = (ALL_REDUCE, COLLECTIVES)

STAGE = "collectives"
PERIOD = 997  # of the patterns, as in the payload: rank r gives (i mod 997 + 1) * (r + 1) to a reduction at place i
REDUCED = ("all_reduce", "reduce_scatter")
MOST = 8  # findings; the number of all is in the last


class Wrong(NamedTuple):
    """What one rank received wrong in one collective of one type and size."""

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
        return f"place {sample['place']} holds {str(sample['got'])[:24]} instead of {str(sample['wanted'])[:24]}"


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
    """One for each rank that is blamed for a collective, with the first case of it and how many there are."""
    cases: dict[tuple[str, str, int], list[Wrong]] = {}
    for one in bad:
        cases.setdefault((one.collective, one.dtype, one.size), []).append(one)
    told: dict[tuple[int, str], tuple[str, Wrong]] = {}
    count: dict[tuple[int, str], int] = {}
    # A sum of another type that is wrong everywhere, too, has the same reason, though it cannot be reckoned.
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
            f"{named(reports, rank)}: {text}: {example.example}" + (f"; and {more} more of it" if more else ""),
            fix=f"Look at the GPU and the links of local rank {reports.places[rank].local_rank}",
            observed=str(example.samples[0]["got"])[:64],
            expected=str(example.samples[0]["wanted"])[:64],
        )


def named(reports: Reports, rank: int) -> str:
    """The rank, with its GPU where it has one."""
    gpu = reports.facts("world").get(rank, {}).get("gpu_uuid")
    text = reports.named(rank)
    return f"{text[:-1]}, {gpu[:48]})" if isinstance(gpu, str) and gpu else text


def blame(reports: Reports, case: list[Wrong]) -> Iterator[tuple[int, str, Wrong]]:
    """(rank, what is said of it, example) for one collective of one type and size."""
    first = case[0]
    if share := lost_share(reports, case):
        rank, how = share
        yield rank, f"its contribution to {first.what} {how} on all {len(case)} ranks", first
        return
    if first.collective not in REDUCED:
        origins = {integer(sample.get("from")) for one in case for sample in one.samples}
        origin = origins.pop() if len(case) > 1 and len(origins) == 1 else None
        if origin is not None and origin in reports.places:
            yield origin, f"what it sent in {first.what} is wrong on {len(case)} ranks", first
            return
    for one in case:
        yield one.rank, f"{one.what} is wrong at {plural(one.mismatches, 'place')}{hint(reports, one)}", one


def lost_share(reports: Reports, case: list[Wrong]) -> tuple[int, str] | None:
    """Whose contribution all ranks lack, or have twice."""
    if case[0].collective not in REDUCED or not len(case) == len(reports.places) > 1:
        return None
    shares = {missing(one, len(reports.places)) for one in case}
    return shares.pop() if len(shares) == 1 else None


def missing(wrong: Wrong, world_size: int) -> tuple[int, str] | None:
    """Whose contribution to a sum is missing or there twice, when two places agree about it."""
    found = set()
    for sample in wrong.samples:
        place, got, wanted = (sample[name] for name in ("place", "got", "wanted"))
        if not all(isinstance(value, int) for value in (place, got, wanted)):
            return None
        # The expected value is the pattern's times n (n + 1) / 2, whatever the place.
        times, rest = divmod(wanted, world_size * (world_size + 1) // 2)
        rank, odd = divmod(wanted - got, times) if times else (0, 1)
        if rest or odd or not 1 <= abs(rank) <= world_size:
            return None
        found.add((abs(rank) - 1, "is missing" if rank > 0 else "is there twice"))
    return found.pop() if len(found) == 1 and len(wrong.samples) > 1 else None


def hint(reports: Reports, wrong: Wrong) -> str:
    """What the wrong value looks like, where it is one that the pattern knows."""
    count = len(reports.places)
    if wrong.collective in REDUCED:
        share = missing(wrong, count)
        return f", as if what rank {share[0]} gave {share[1].replace('is', 'were', 1)}" if share else ""
    got = wrong.samples[0]["got"]
    if not isinstance(got, int) or not 0 <= got < PERIOD * count * count:
        return ""
    origin, to = divmod(got // PERIOD, count)
    if (origin, to) == (wrong.samples[0].get("from"), wrong.rank):
        return f", where another part of what rank {origin} sent is"
    return (
        f", where what rank {origin} sent to rank {to} is"
        if wrong.collective in ("all_to_all", "ring")
        else (f", where what rank {origin} sent is")
    )


def expected_sum(size: int, world_size: int) -> int:
    """Sum over all places of the reduced pattern; exact in integers."""
    whole, rest = divmod(size, PERIOD)
    pattern = whole * (PERIOD * (PERIOD + 1) // 2) + rest * (rest + 1) // 2
    return pattern * (world_size * (world_size + 1) // 2)


def totals(reports: Reports, told: set[int]) -> Iterator[Said]:
    """Integer all-reduce, exact at every place on every rank; the total is computed here once more."""
    sizes: dict[int, set[int]] = {}
    found = bool(told)
    for rank, said in reports.facts(STAGE).items():
        node = reports.places[rank].node
        random = said.get("random")
        outside = integer(random.get("mismatches")) if isinstance(random, dict) else None
        if outside and rank not in told:
            found = True
            where = plural(outside, "place")
            text = f"{named(reports, rank)}: sums of random float32 are outside their bound at {where}"
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
                where = f"at {plural(mismatches, 'place')}" if mismatches else "in its total"
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
    """The collectives beside all-reduce: passed, and what was not tried."""
    exact = [case for case in measured(reports)["cases"] if case["collective"] != "all_reduce"]
    if not any("cases" in said for said in reports.facts(STAGE).values()):
        yield COLLECTIVES.skip("no rank reported it")
    elif not wrong:
        names = ", ".join(dict.fromkeys(case["collective"] for case in exact))
        # One that a rank did not come to is in no list of its own.
        whole = bool(exact) and reports.whole(STAGE, "cases")
        yield reports.good(COLLECTIVES, f"{names} exact" if exact else "no other collective was tried", whole=whole)
    untried: dict[str, str] = {}
    for said in reports.facts(STAGE).values():
        not_tried = said.get("not_tried")
        untried.update(not_tried if isinstance(not_tried, dict) else {})
    for name, why in list(untried.items())[:MOST]:
        yield COLLECTIVES.skip(f"{str(name)[:40]} was not tried: {str(why)[:160]}")


def measured(reports: Reports) -> dict[str, Any]:
    """For smoke.json: each collective and type, its sizes, and whether it was exact on all ranks that tell of it."""
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
