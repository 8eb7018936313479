"""Evaluate checkpoints: whether they were written completely, every rank loaded them, and they suffice to resume the
training."""

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
    reads="a checkpoint that rank 0 writes to a temporary file, syncs and renames: ranks that share its folder read "
    "the file, others receive a copy. Also a newer checkpoint that the test truncates to half its size",
    fires="no checkpoint can be loaded, a rank reads different bytes than were written, or the truncated checkpoint is"
    " accepted (fail)",
    fix="Check the disk or file server of the checkpoint folder: free space, kernel log, mount options",
)
RESUME = Check(
    "smoke.resume",
    seen="sandbox",
    reads="parameters, step, learning rate and gradient scale after two runs: one resumed from a checkpoint "
    "(parameters, optimizer, schedule, scaler, step and every rank's random state), and one without interruption",
    fires="fail: on CPUs, the parameters are not bitwise equal; on GPUs, where the summation order varies, an element "
    "differs by more than 1e-5 + 1e-4 of its value; on both, another value differs",
    fix="Check the GPUs and the memory of the node",
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
    text = f"a checkpoint of {gigabytes(size or 0)} was written and loaded by {by}; a truncated checkpoint was rejected"
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
            text = f"{reports.named(rank)} cannot load the checkpoint of rank 0: {said['problem'][:200]}"
            yield CHECKPOINT.fail(reports.places[rank].node, text)
    # All ranks report the same results of rank 0.
    first = facts.get(min(facts)) if facts else None
    if first is None:
        return
    writer = reports.named(0)
    if not first["used"]:
        refused = few([str(one)[:200] for one in first["refused"]], "; ") or "no checkpoint exists"
        text = f"{writer} has no complete checkpoint to load: {refused}"
        yield CHECKPOINT.fail(reports.places[0].node, text)
    elif first["used"] == first["torn"]:
        text = f"{writer} accepted the truncated file {first['torn'][:100]} as a complete checkpoint"
        yield CHECKPOINT.fail(reports.places[0].node, text)


def resumed(reports: Reports, facts: Mapping[int, Mapping[str, Any]]) -> Iterator[Said]:
    apart_by_rank = {rank: how for rank, said in facts.items() if (how := difference(said))}
    digests = words_of(facts, "parameters_sha256")
    known = [
        rank for rank in digests if apart(facts[rank].get("worst")) and isinstance(facts[rank].get("bitwise"), bool)
    ]
    if len(by_value(digests)) > 1:
        yield from disagree(RESUME, reports, digests, "parameters after the resumed run")
    elif len(apart_by_rank) == len(facts) > 1:
        # Gradients are averaged: one rank that resumes from another state changes the result of all ranks.
        text = f"all {plural(len(facts), 'rank')} have a different result after resuming: {apart_by_rank[min(facts)]}"
        yield RESUME.fail(reports.head, text)
    elif apart_by_rank:
        for node, ranks in by_node(reports, apart_by_rank).items():
            how = apart_by_rank[ranks[0]]
            yield RESUME.fail(node, f"{who(reports, ranks)} {has(ranks)} a different result after resuming: {how}")
    else:
        bitwise = all(facts[rank]["bitwise"] for rank in known)
        how = "bitwise equal" if bitwise else "within the tolerance"
        yield settled(RESUME, reports, known, f"the resumed run equals the uninterrupted run ({how})")


def difference(said: Mapping[str, Any]) -> str:
    """Return how the resumed run differs on a rank; "" if it is equal."""
    worst, other = apart(said.get("worst")), said.get("other")
    if worst and worst.excess > 1:
        return str(worst)
    if worst and said.get("must") is True and said.get("bitwise") is False:
        return f"{worst}; on CPUs, results must be bitwise equal"
    return f"different {few([str(name)[:40] for name in other])}" if isinstance(other, list) and other else ""


def measured(reports: Reports) -> dict[str, Any]:
    """Return the part of smoke.json about checkpoints. bytes: size of a checkpoint. shared: by node, whether the node
    sees the folder that rank 0 writes to."""
    facts = reports.facts(STAGE)
    sizes = [size for said in facts.values() if (size := number(said.get("bytes"))) is not None]
    nodes = by_node(reports, [rank for rank, said in facts.items() if isinstance(said.get("shared"), bool)])
    shared = {node: all(facts[rank]["shared"] for rank in ranks) for node, ranks in nodes.items()}
    return {"bytes": max(sizes, default=None), "shared": shared}
