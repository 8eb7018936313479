"""The code that jobs run, which health_code names: whether it is there, and on every node the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.entry import Entry
from .judged import Judged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .judged import Outcome

FINDINGS = {
    "job.code.missing": Entry(
        reads="the paths in health_code",
        fires="fail: one is not there on this node",
        fix="Copy it to the same path on every node",
    ),
}
LOOKS = ("code",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Outcome:
    out = Judged(request["node"])
    if not facts["code"]:
        return out.skip_all(FINDINGS, "health_code names no code")
    for path, seen in facts["code"].items():
        if seen["digest"]:
            continue
        if seen["why"] == "it is not there":
            out.fail("job.code.missing", f"{path} (health_code) is not there", "Copy it to the same path on every node")
        else:
            out.skip(f"{path}: {seen['why']}", "versions.code")
    return out.outcome
