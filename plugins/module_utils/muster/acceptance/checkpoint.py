"""A checkpoint: written whole, loaded everywhere, and enough to go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.words import few, gigabytes, plural
from .agreement import HEALTH, apart, by_node, by_value, disagree, has, settled, who, words_of
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from ..verdict.finding import Finding
    from .reports import Reports

CHECKPOINT = Check(
    "smoke.checkpoint",
    seen="sandbox",
    reads="a checkpoint that rank 0 writes under another name, brings to the disk and renames, read back by all ranks"
    " on nodes that see the folder and sent to the others; and a newer one that was cut in half on purpose",
    fires="none can be loaded, a rank reads other bytes than were written, or the torn one is taken for a whole one"
    " (fail)",
    fix="Look at the disk or the file server behind that folder: its room, its kernel log, how it is mounted",
)
RESUME = Check(
    "smoke.resume",
    seen="sandbox",
    reads="parameters, step, learning rate and scale of a run that went on from a checkpoint with parameters,"
    " optimizer, schedule, scaler, step and every rank's random numbers, and of the same run without the interruption",
    fires="the parameters are not bitwise equal on CPUs, or on GPUs, where some sums are taken in any order, an element"
    " differs by more than 1e-5 + 1e-4 of its value; or another value differs (fail)",
    fix="Look at the GPUs and the memory of its node",
    command=HEALTH,
)
CHECKS = (CHECKPOINT, RESUME)

STAGE = "checkpoint"


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    facts = {rank: said for rank, said in reports.facts(STAGE).items() if is_told(said)}
    wrong = list(loaded(reports, facts))
    size = number(facts[min(facts)].get("bytes")) if facts else None
    by = plural(len(facts), "rank")
    text = f"a checkpoint of {gigabytes(size or 0)} written whole, loaded by {by}; a torn one refused"
    yield from wrong or [settled(CHECKPOINT, reports, list(facts), text)]
    if facts and not any(said["used"] for said in facts.values()):
        yield RESUME.skip("no checkpoint could be loaded")
    else:
        yield from resumed(reports, facts)


def is_told(said: Mapping[str, Any]) -> bool:
    return all(isinstance(said.get(key), str) for key in ("used", "torn", "problem")) and isinstance(
        said.get("refused"), list
    )


def loaded(reports: Reports, facts: Mapping[int, Mapping[str, Any]]) -> Iterator[Finding]:
    for rank, said in facts.items():
        if said["problem"]:
            text = f"{reports.named(rank)} cannot load what rank 0 wrote: {said['problem'][:200]}"
            yield CHECKPOINT.fail(reports.places[rank].node, text)
    # What rank 0 found is said by all ranks alike.
    first = facts.get(min(facts)) if facts else None
    if first is None:
        return
    writer = reports.named(0)
    if not first["used"]:
        refused = few([str(one)[:200] for one in first["refused"]], "; ") or "none is there"
        text = f"{writer} has no whole checkpoint to load: {refused}"
        yield CHECKPOINT.fail(reports.places[0].node, text)
    elif first["used"] == first["torn"]:
        text = f"{writer} takes {first['torn'][:100]} for a whole checkpoint, which was cut in half"
        yield CHECKPOINT.fail(reports.places[0].node, text)


def resumed(reports: Reports, facts: Mapping[int, Mapping[str, Any]]) -> Iterator[Said]:
    apart_by_rank = {rank: how for rank, said in facts.items() if (how := difference(said))}
    digests = words_of(facts, "parameters_sha256")
    known = [
        rank for rank in digests if apart(facts[rank].get("worst")) and isinstance(facts[rank].get("bitwise"), bool)
    ]
    if len(by_value(digests)) > 1:
        yield from disagree(RESUME, reports, digests, "parameters at the end of the resumed run")
    elif len(apart_by_rank) == len(facts) > 1:
        # Their gradients are averaged: one rank that goes on from something else takes all others with it.
        text = f"all {plural(len(facts), 'rank')} have another result when resumed: {apart_by_rank[min(facts)]}"
        yield RESUME.fail(reports.head, text)
    elif apart_by_rank:
        for node, ranks in by_node(reports, apart_by_rank).items():
            how = apart_by_rank[ranks[0]]
            yield RESUME.fail(node, f"{who(reports, ranks)} {has(ranks)} another result when resumed: {how}")
    else:
        bitwise = all(facts[rank]["bitwise"] for rank in known)
        how = "bitwise equal" if bitwise else "within the tolerance"
        yield settled(RESUME, reports, known, f"the resumed run is equal to the uninterrupted one ({how})")


def difference(said: Mapping[str, Any]) -> str:
    """How the resumed run is not the same on a rank; nothing where it is."""
    worst, other = apart(said.get("worst")), said.get("other")
    if worst and worst.excess > 1:
        return str(worst)
    if worst and said.get("must") is True and said.get("bitwise") is False:
        return f"{worst}, and CPUs are to come to the same bits"
    return f"its {few([str(name)[:40] for name in other])}" if isinstance(other, list) and other else ""


def measured(reports: Reports) -> dict[str, Any]:
    """bytes: of a checkpoint. shared: by node, whether it sees the folder that rank 0 writes to."""
    facts = reports.facts(STAGE)
    sizes = [size for said in facts.values() if (size := number(said.get("bytes"))) is not None]
    nodes = by_node(reports, [rank for rank, said in facts.items() if isinstance(said.get("shared"), bool)])
    shared = {node: all(facts[rank]["shared"] for rank in ranks) for node, ranks in nodes.items()}
    return {"bytes": max(sizes, default=None), "shared": shared}
