"""Check that a short all-reduce between all ranks of one node succeeds and returns the correct result."""

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
    reads="an all-reduce between this node's ranks, in a unit with a launch's settings (requires health_collective)",
    fires="fail: the all-reduce returns an error or does not finish",
    fix="Check the node's GPUs, libraries and resource limits. The network between nodes is not involved",
)
COLLECTIVE_WRONG = Check(
    "job.collective.wrong",
    seen="recording",
    reads="the result that this all-reduce returns on every rank",
    fires="fail: a result differs from the expected value",
    fix="Exclude the node from launches (cluster_quarantined: true), and test its GPUs with",
    command="dcgmi diag -r 3",
)
CHECKS = (COLLECTIVE_FAILED, COLLECTIVE_WRONG)
LOOKS = ("collective",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["collective"]
    if not request["collective"]:
        yield from skip_all(CHECKS, "not requested (health_collective)")
        return
    if seen["skipped"]:
        yield from skip_all(CHECKS, seen["skipped"])
        return
    if seen["why"]:
        yield COLLECTIVE_FAILED.fail(
            node,
            f"an all-reduce between the {request['nproc']} ranks of this node failed: {seen['why']}",
            observed=seen["why"],
            evidence=evidence("output of the ranks", seen["said"]),
        )
        yield COLLECTIVE_WRONG.skip("the all-reduce returned no result")
    elif seen["wrong"]:
        yield COLLECTIVE_WRONG.fail(
            node,
            f"an all-reduce on this node alone was wrong on rank {', '.join(map(str, seen['wrong']))}",
            observed=f"wrong on {len(seen['wrong'])} ranks",
            expected="correct on all",
        )
