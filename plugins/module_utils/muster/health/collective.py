"""A short collective of all ranks of one node: whether it is right, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.finding import evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

COLLECTIVE_FAILED = Check(
    "job.collective.failed",
    seen="recording",
    reads="an all-reduce over the ranks of this node alone, in a unit like a launch's, with health_collective",
    fires="fail: it ends with an error, or does not end",
    fix="The network between the nodes has no part in it: look at its GPUs, libraries and limits",
)
COLLECTIVE_WRONG = Check(
    "job.collective.wrong",
    seen="recording",
    reads="the same all-reduce's result on every rank",
    fires="fail: it differs from what was computed beforehand",
    fix="Leave the node out of launches (cluster_quarantined: true), and test its GPUs",
    command="dcgmi diag -r 3",
)
CHECKS = (COLLECTIVE_FAILED, COLLECTIVE_WRONG)
LOOKS = ("collective",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["collective"]
    if not request["collective"]:
        yield from skip_all(CHECKS, "it was not asked for (health_collective)")
        return
    if seen["skipped"]:
        yield from skip_all(CHECKS, seen["skipped"])
        return
    if seen["why"]:
        yield COLLECTIVE_FAILED.fail(
            node,
            f"an all-reduce of {request['nproc']} ranks on this node alone failed: {seen['why']}",
            observed=seen["why"],
            evidence=evidence("the ranks", seen["said"]),
        )
        yield COLLECTIVE_WRONG.skip("there is no result")
    elif seen["wrong"]:
        yield COLLECTIVE_WRONG.fail(
            node,
            f"an all-reduce on this node alone came out wrong on rank {', '.join(map(str, seen['wrong']))}",
            observed=f"wrong on {len(seen['wrong'])} ranks",
            expected="right on all",
        )
