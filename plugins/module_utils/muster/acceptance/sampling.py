"""Check the shards of DistributedSampler: they must be disjoint and complete, and their order must change in each
epoch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.check import Check
from ..verdict.words import few, plural
from .agreement import by_node, has, settled, who

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from ..verdict.finding import Finding
    from .reports import Reports

SAMPLER = Check(
    "smoke.sampler",
    seen="sandbox",
    reads="the indices that DistributedSampler returns on each rank in two epochs, with and without drop_last and "
    "shuffle, for sample counts that are and are not divisible by the number of ranks",
    fires="fail: the shards of n ranks together do not contain all N samples, with ceil(N/n) * n - N of them twice; "
    "or with drop_last, they do not contain N minus the remainder of N/n samples, each once. If a rank has another "
    "rank's shard, the finding names the rank",
    fix="Compare rank and num_replicas of the rank's sampler with RANK and WORLD_SIZE",
)
SET_EPOCH = Check(
    "smoke.set_epoch",
    seen="sandbox",
    reads="each rank's shuffled shard in epochs 0 and 1, and two shuffled shards without a set_epoch call in between",
    fires="the order is the same in both epochs, or changes without set_epoch (fail)",
    fix="Check the software on the rank: its DistributedSampler does not behave like that of torch",
)
EVALUATION = Check(
    "smoke.evaluation",
    seen="stand-in",
    reads="the number of samples that all ranks together count in their shards, without padding",
    fires="the ranks do not count each sample exactly once (fail)",
    fix="Check the findings of smoke.all_reduce",
)
CHECKS = (SAMPLER, SET_EPOCH, EVALUATION)

STAGE = "sampling"
MOST = 2**20  # samples of a case: more than the payload uses, and fast to count
RIGHT = 3  # in the payload, every third sample is correct


class SamplerCase(NamedTuple):
    size: int
    drop_last: bool
    shuffle: bool
    epoch: int

    def __str__(self) -> str:
        words = [plural(self.size, "sample")]
        words += ["drop_last"] if self.drop_last else []
        words += [f"shuffled, epoch {self.epoch}" if self.shuffle else "in order"]
        return ", ".join(words)


Shards = dict[SamplerCase, dict[int, tuple[int, ...]]]


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    shards = shards_of(reports)
    count = len(reports.places)
    known = [rank for rank in reports.places if shards and all(rank in by_rank for by_rank in shards.values())]
    stale = list(set_epoch(reports, shards))
    wrong = list(sampler(reports, shards, stale=bool(stale))) if len(known) == count else []
    text = f"shards of {plural(count, 'rank')} are disjoint and complete in {plural(len(shards), 'case')}"
    yield from wrong or [settled(SAMPLER, reports, known, text)]
    told = [rank for rank in known if "repeats" in reports.facts(STAGE)[rank]]
    yield from stale or [settled(SET_EPOCH, reports, told, "the order changes only with set_epoch")]
    if wrong:
        yield EVALUATION.skip("the shards are wrong, so their samples were not counted")
    else:
        yield from evaluation(reports)


def shards_of(reports: Reports) -> Shards:
    """Return the valid lists of indices by case and rank."""
    shards: Shards = {}
    for rank, said in reports.facts(STAGE).items():
        listed = said.get("shards")
        for one in listed if isinstance(listed, list) else []:
            case, indices = case_of(one), one.get("indices") if isinstance(one, dict) else None
            if case and isinstance(indices, list) and all(type(index) is int for index in indices):
                shards.setdefault(case, {})[rank] = tuple(indices)
    return shards


def case_of(said: Any) -> SamplerCase | None:
    values: list[Any] = [said.get(key) for key in SamplerCase._fields] if isinstance(said, dict) else []
    known = [type(value) for value in values] == [int, bool, bool, int] and 0 < values[0] <= MOST
    return SamplerCase(*values) if known else None


def share_of(case: SamplerCase, ranks: int) -> int:
    """Return the number of samples that each rank receives."""
    return case.size // ranks if case.drop_last else -(-case.size // ranks)


def in_order(case: SamplerCase, rank: int, ranks: int) -> tuple[int, ...]:
    """Return the shard of a rank if samples are not shuffled: every n-th sample, wrapping around at the end."""
    return tuple((rank + place * ranks) % case.size for place in range(share_of(case, ranks)))


def sampler(reports: Reports, shards: Shards, *, stale: bool) -> Iterator[Finding]:
    """Yield a failure for each rank that has another rank's shard, which can only be determined without shuffling.
    Otherwise yield failures for ranks whose shards overlap."""
    ranks = len(reports.places)
    wrong = [case for case, by_rank in shards.items() if not whole(case, by_rank, ranks)]
    for case in (case for case in wrong if not case.shuffle):
        own = {in_order(case, rank, ranks): rank for rank in reports.places}
        for rank, indices in sorted(shards[case].items()):
            other = own.get(indices)
            if other != rank:
                what = f"the shard of {reports.named(other)}" if other is not None else "an unknown shard"
                text = f"{reports.named(rank)} has {what} instead of its own ({case}): {few(list(map(str, indices)))}"
                yield SAMPLER.fail(reports.places[rank].node, text)
        return
    # A rank that keeps the order of another epoch has a finding of smoke.set_epoch.
    for case in (case for case in wrong if not (stale and case.epoch)):
        by_rank = shards[case]
        counted = Counter(index for indices in by_rank.values() for index in indices)
        twice = {index for index, count in counted.items() if count > 1}
        both = [rank for rank, indices in by_rank.items() if twice & set(indices)] or list(by_rank)
        missing = len(set(range(case.size)) - set(counted))
        text = f"{plural(len(twice), 'sample')} twice, {missing} missing ({case})"
        for node, theirs in by_node(reports, both).items():
            yield SAMPLER.fail(node, f"{who(reports, theirs)} {has(theirs)} samples of other ranks: {text}")
        return


def whole(case: SamplerCase, by_rank: Mapping[int, tuple[int, ...]], ranks: int) -> bool:
    """Return whether the shards of all ranks are correct."""
    share = share_of(case, ranks)
    counted = Counter(index for indices in by_rank.values() for index in indices)
    left_out = max(0, case.size - share * ranks)
    return (
        all(len(indices) == share for indices in by_rank.values())
        and set(counted) <= set(range(case.size))
        and len(counted) == case.size - left_out
    )


def set_epoch(reports: Reports, shards: Shards) -> Iterator[Finding]:
    same = {
        rank
        for case, by_rank in shards.items()
        if case.shuffle and case.epoch
        for rank, indices in by_rank.items()
        if shards.get(case._replace(epoch=0), {}).get(rank) == indices and len(indices) > 1
    }
    for node, ranks in by_node(reports, same).items():
        text = f"{who(reports, ranks)} {has(ranks)} the same order in epochs 0 and 1: set_epoch has no effect"
        yield SET_EPOCH.fail(node, text)
    unsteady = [rank for rank, said in reports.facts(STAGE).items() if said.get("repeats") is False]
    for node, ranks in by_node(reports, unsteady).items():
        text = f"{who(reports, ranks)} {has(ranks)} a different order each time, although set_epoch is not called"
        yield SET_EPOCH.fail(node, text)


def evaluation(reports: Reports) -> Iterator[Said]:
    counted, wrong = [], {}
    for rank, said in reports.facts(STAGE).items():
        facts = said.get("evaluation")
        values: list[Any] = [facts.get(key) for key in ("size", "total", "correct")] if isinstance(facts, dict) else []
        if [type(value) for value in values] == [int, int, int]:
            size, total, correct = values
            counted.append(rank)
            if (total, correct) != (size, -(-size // RIGHT)):
                wrong[rank] = f"{correct} correct of {total} samples, expected {-(-size // RIGHT)} of {size}"
    if wrong and len(wrong) == len(counted):
        yield EVALUATION.fail(reports.head, f"all ranks together counted {wrong[min(wrong)]}")
    elif wrong:
        for rank, text in wrong.items():
            yield EVALUATION.fail(reports.places[rank].node, f"{reports.named(rank)} counted {text}")
    else:
        yield settled(EVALUATION, reports, counted, "an evaluation over all ranks counts each sample once")
