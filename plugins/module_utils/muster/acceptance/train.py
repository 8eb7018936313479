"""Evaluate a small training: the loss must fall, and all ranks must have equal parameters afterwards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..verdict.check import Check
from .agreement import HEALTH, disagree, settled, words_of
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.check import Said
    from .reports import Reports

PARAMETERS = Check(
    "smoke.parameters",
    seen="stand-in",
    reads="a digest of every rank's parameters after training",
    fires="the parameters are not bitwise equal on all ranks (fail). The finding names the ranks that differ from "
    "most ranks, or all ranks if there is no majority",
    fix="Check the node's GPUs and memory",
    command=HEALTH,
)
LOSS = Check(
    "smoke.loss",
    seen="stand-in",
    reads="the first and the last mean loss over all ranks",
    fires="the last loss is not below ddp_smoke_loss_ratio times the first, or is not finite (fail)",
    fix="Train for more steps (ddp_smoke_steps), or check the ranks",
)
CHECKS = (PARAMETERS, LOSS)

STAGE = "train"


def judge(reports: Reports) -> Iterator[Said]:
    if reports.tried(STAGE):
        yield from parameters(reports)
        yield from loss(reports)


def parameters(reports: Reports) -> Iterator[Said]:
    """Check that the parameters of all ranks are bitwise equal after training."""
    digests = words_of(reports.facts(STAGE), "parameters_sha256")
    differ = list(disagree(PARAMETERS, reports, digests, "parameters after training"))
    text = "parameters are bitwise equal on all ranks after training"
    yield from differ or [settled(PARAMETERS, reports, list(digests), text)]


def loss(reports: Reports) -> Iterator[Said]:
    """Check that the mean loss over all ranks has fallen."""
    first, last = mean(reports, "loss_first"), mean(reports, "loss_last")
    if first is None or last is None:
        yield LOSS.unknown(reports.head, "no rank reported a loss", fix="")
        return
    text = f"loss {first:.3f} -> {last:.3f}"
    wanted = first * reports.bounds.loss_ratio
    # Written so that NaN and infinity fail.
    if math.isfinite(first) and math.isfinite(last) and last < wanted:
        yield reports.good(LOSS, text, whole=reports.whole(STAGE, "loss_last"))
    else:
        below = f"below {wanted:.3f}"
        yield LOSS.fail(reports.head, f"{text}: the loss did not fall", fix="", observed=text, expected=below)


def mean(reports: Reports, key: str) -> float | None:
    """Return the mean of the reported values; None if no rank reported a value."""
    values = [value for said in reports.facts(STAGE).values() if (value := number(said.get(key))) is not None]
    return sum(values) / len(values) if values else None
