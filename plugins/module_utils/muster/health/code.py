"""Check whether the code of jobs (health_code) exists on the node, and whether all nodes have the same code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.finding import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

MISSING = Check(
    "job.code.missing",
    seen="recording",
    reads="the paths in health_code",
    fires="fail: a path does not exist on this node",
    fix="Copy the code to the same path on every node",
)
CHECKS = (MISSING,)
LOOKS = ("code",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    if not facts["code"]:
        yield MISSING.skip("health_code is empty")
    for path, seen in facts["code"].items():
        if seen["digest"]:
            continue
        if seen["why"] == "not found":
            yield MISSING.fail(request["node"], f"{path} (health_code) does not exist")
        else:
            yield Skipped(id="versions.code", why=f"{path}: {seen['why']}")
