"""A short collective of all ranks of one node: whether it is right, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.entry import Entry
from ..verdict.finding import evidence
from .judged import Judged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .judged import Outcome

FINDINGS = {
    "job.collective.failed": Entry(
        reads="an all-reduce over the ranks of this node alone, in a unit like a launch's, with health_collective",
        fires="fail: it ends with an error, or does not end",
        fix="Look at what it says: the network between nodes has no part in it",
    ),
    "job.collective.wrong": Entry(
        reads="the same all-reduce's result on every rank",
        fires="fail: it differs from what was computed beforehand",
        fix="Take the node out of launches (cluster_quarantined) and test its GPUs and memory",
    ),
}
LOOKS = ("collective",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Outcome:
    out = Judged(request["node"])
    seen = facts["collective"]
    if not request["collective"]:
        return out.skip_all(FINDINGS, "it was not asked for (health_collective)")
    if seen["skipped"]:
        return out.skip_all(FINDINGS, seen["skipped"])
    if seen["why"]:
        out.fail(
            "job.collective.failed",
            f"an all-reduce of {request['nproc']} ranks on this node alone failed: {seen['why']}",
            "The network between the nodes has no part in it: look at its GPUs, libraries and limits",
            observed=seen["why"],
            evidence=evidence("the ranks", seen["said"]),
        )
        out.skip("there is no result", "job.collective.wrong")
    elif seen["wrong"]:
        out.fail(
            "job.collective.wrong",
            f"an all-reduce on this node alone came out wrong on rank {', '.join(map(str, seen['wrong']))}",
            "Leave the node out of launches (cluster_quarantined: true), and test its GPUs",
            "dcgmi diag -r 3",
            observed=f"wrong on {len(seen['wrong'])} ranks",
            expected="right on all",
        )
    return out.outcome
