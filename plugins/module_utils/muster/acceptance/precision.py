"""Evaluate training in mixed precision: the loss must fall, the ranks must agree, and the losses must be close to those
in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from .agreement import HEALTH, NOT_FINITE, by_node, by_value, disagree, has, settled, who, words_of
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from ..verdict.finding import Finding
    from .reports import Reports

AMP = Check(
    "smoke.amp",
    seen="sandbox",
    reads="the losses of a training under autocast (bfloat16 if all ranks support it, otherwise float16 with a "
    "GradScaler) and of the same training in float32; every rank's final parameters and gradient scale",
    fires="fail: a loss is not finite, does not fall, or differs from the float32 loss by more than 1/20 of the first "
    "loss; or the final parameters or gradient scale of a rank differ from those of most ranks. bfloat16 has 8 "
    "significant bits and rounds by up to 1/256; the measured difference of losses was 1/2000",
    fix="Check the GPUs of the nodes, and the versions of torch and cuDNN",
    command=HEALTH,
)
CHECKS = (AMP,)

STAGE = "precision"
FAR = 0.05  # of the first loss
ENDS = 2  # losses averaged at the beginning and at the end

Runs = dict[str, dict[int, "Mapping[str, Any]"]]


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    runs = runs_of(reports)
    wrong = [finding for dtype, by_rank in runs.items() for finding in mixed(reports, dtype, by_rank)]
    known = [
        rank for rank in reports.places if runs and all(is_told(by_rank.get(rank, {})) for by_rank in runs.values())
    ]
    names = ", ".join(runs)
    yield from wrong or [settled(AMP, reports, known, f"losses in {names} are close to float32 and equal on all ranks")]


def runs_of(reports: Reports) -> Runs:
    """Return the reports of each dtype, by rank, and the float32 losses."""
    runs: Runs = {}
    for rank, said in reports.facts(STAGE).items():
        listed, plain = said.get("mixed"), said.get("float32")
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, dict) and isinstance(one.get("dtype"), str) and isinstance(plain, dict):
                runs.setdefault(one["dtype"][:20], {})[rank] = {**one, "plain": plain.get("losses")}
    return runs


def is_told(said: Mapping[str, Any]) -> bool:
    return bool(said.get("parameters_sha256") and losses_of(said, "losses") and losses_of(said, "plain"))


def losses_of(said: Mapping[str, Any], key: str) -> list[float]:
    """Return the losses; an empty list unless all of them are numbers."""
    listed = said.get(key)
    values = [number(value) for value in listed] if isinstance(listed, list) else []
    return [value for value in values if value is not None] if None not in values else []


def mixed(reports: Reports, dtype: str, by_rank: Mapping[int, Mapping[str, Any]]) -> Iterator[Finding]:
    lost = {rank: step for rank, said in by_rank.items() if type(step := said.get("lost_at")) is int}
    if lost:
        first = min(lost.values())
        # One step later, all ranks have it, because the gradients are averaged.
        for node, ranks in by_node(reports, [rank for rank, step in lost.items() if step == first]).items():
            text = f"{who(reports, ranks)} {has(ranks)} a loss that is not finite at step {first + 1} ({dtype})"
            yield AMP.fail(node, text)
        return
    digests, scales = words_of(by_rank, "parameters_sha256"), scales_of(by_rank)
    yield from disagree(AMP, reports, digests, f"final parameters ({dtype})")
    yield from disagree(AMP, reports, scales, f"gradient scales ({dtype})")
    if len(by_value(digests)) > 1 or len(by_value(scales)) > 1:
        return
    told = [said for said in by_rank.values() if is_told(said)]
    if told and (text := strange(losses_of(told[0], "losses"), losses_of(told[0], "plain"))):
        yield AMP.fail(reports.head, f"the loss in {dtype} {text}")


def scales_of(by_rank: Mapping[int, Mapping[str, Any]]) -> dict[int, float]:
    return {rank: scale for rank, said in by_rank.items() if (scale := number(said.get("scale"))) is not None}


def strange(losses: list[float], plain: list[float]) -> str:
    """Return what is wrong with losses that are means over all ranks; "" if they are OK."""
    if not all(abs(loss) < NOT_FINITE for loss in [*losses, *plain]):
        return "is not finite"
    first, last = sum(losses[:ENDS]) / ENDS, sum(losses[-ENDS:]) / ENDS
    if not last < first:
        return f"does not fall: {first:.3f} -> {last:.3f}"
    far, step = max((abs(one - other), step) for step, (one, other) in enumerate(zip(losses, plain, strict=False)))
    if not far <= FAR * plain[0]:
        return f"differs from float32 by {far:.3f} at step {step + 1}, more than the allowed {FAR * plain[0]:.3f}"
    return ""
