"""The status that a running NCCL job reports through RAS (since NCCL 2.24)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.finding import evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

RAS = Check(
    "job.ras",
    seen="recording",
    reads="the response of NCCL RAS on localhost port 28028, while a job with NCCL 2.24 or newer runs",
    fires="warn: RAS reports processes that are dead or do not respond. A MISMATCH alone is ignored, because it is "
    "transient while a job runs",
    fix="Check the processes that RAS reports. Query RAS with",
    command="echo verbose status | nc localhost 28028",
)
CHECKS = (RAS,)
LOOKS = ("ras",)
# Sections have a title with a line of = below it.
SECTION = re.compile(r"^(?P<title>[A-Z][A-Za-z. ()0-9]*)\n=+$", re.MULTILINE)


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    look = looks["ras"]
    errors = sections(look["text"]).get("Errors", "")
    return {"asked": look["asked"], "why": look["why"], "errors": errors.strip()[:4000], "jobs": _jobs(look["text"])}


def sections(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    marks = list(SECTION.finditer(text.replace("\r", "")))
    for number, mark in enumerate(marks):
        end = marks[number + 1].start() if number + 1 < len(marks) else len(text)
        found[mark["title"].partition("(")[0].strip(" .")] = text[mark.end() : end]
    return found


def _jobs(text: str) -> str:
    """Return the five numbers of the job summary: nodes, processes per node, GPUs per process, processes, GPUs."""
    row = re.search(r"^\s*(\d+(?:\s+[\d-]+){4})\s*$", sections(text).get("Job summary", ""), re.MULTILINE)
    return " ".join(row[1].split()) if row else ""


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["ras"]
    if not seen["asked"]:
        yield from skip_all(CHECKS, "no NCCL job responds on this node")
        return
    if seen["why"]:
        yield from skip_all(CHECKS, f"the process on port 28028 did not return an NCCL RAS response: {seen['why']}")
        return
    if not (seen["jobs"] or seen["errors"]):
        yield from skip_all(CHECKS, "the RAS response has an unknown format")
        return
    if seen["errors"]:
        lines = [line.strip() for line in seen["errors"].splitlines() if line.strip()]
        process = next((line for line in lines if line.startswith("Process ")), "")
        yield RAS.warn(
            node,
            f"NCCL RAS reports for the running job: {lines[0]}" + (f", {process}" if process else ""),
            observed=lines[0],
            expected="no errors",
            evidence=evidence("NCCL RAS", seen["errors"][:1000]),
        )
