"""Compare expected and observed results of the experiments, and print them as a table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PASSED, FINDING, FAILED, LEFT_OUT = "PASS", "FINDING", "FAILED", "left out"
MOST = 300  # maximum length of a quoted line


@dataclass(frozen=True)
class Expected:
    """The expected result. status: status of the verdict. ids: causes or findings, one of which must be reported (the
    cause can depend on NCCL or Gloo)."""

    status: str
    ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.status} {' or '.join(self.ids)}".strip()


@dataclass(frozen=True)
class Seen:
    """Results from the artifacts of a run. says: lines of the diagnosis, or the summary of the verdict."""

    status: str
    ids: tuple[str, ...] = ()
    says: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.status} {', '.join(self.ids)}".strip()


@dataclass
class Result:
    """The result of an experiment. outcome: PASS; FINDING if the result is unexpected; FAILED with the step; or left
    out, with the reason."""

    name: str
    outcome: str
    expected: str
    seen: str = ""
    says: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def line(self) -> str:
        told = self.seen if self.outcome in (PASSED, LEFT_OUT) else f"{self.seen} (expected: {self.expected})"
        return f"{self.name:<12} {self.seconds:>5.0f} s  {self.outcome:<8}  {told}"


def read_seen(folder: Path) -> Seen:
    """Return the results of a run from verdict.json and the causes of diagnosis.json."""
    verdict, diagnosis = (read_json(folder / name) for name in ("verdict.json", "diagnosis.json"))
    causes = [cause["id"] for cause in diagnosis.get("causes", [])]
    failed = [one["id"] for one in verdict.get("findings", []) if one["status"] not in ("pass", "skip")]
    says = diagnosis.get("lines") or [verdict.get("summary", "")]
    ids = tuple(dict.fromkeys([*causes, *failed]))
    return Seen(verdict.get("status", "no verdict"), ids, tuple(line[:MOST] for line in says))


def unread(folder: Path, ranks: int) -> list[str]:
    """Return why the evidence of a diagnosis has no flight recorder of some ranks. An empty recorder counts as one that
    was not read."""
    shots = [shot for one in read_json(folder / "evidence.json").get("snapshots", {}).values() for shot in one["ranks"]]
    why = [f"rank {one['rank']}: {one['flight_why']}" for one in shots if not (one["flight"] or {}).get("enqueued")]
    return why if len(shots) == ranks else [*why, f"{len(shots)} of {ranks} ranks were inspected"]


def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def compare(name: str, expected: Expected, seen: Seen, seconds: float) -> Result:
    named = not expected.ids or set(expected.ids) & set(seen.ids)
    outcome = PASSED if seen.status == expected.status and named else FINDING
    return Result(name, outcome, str(expected), str(seen), list(seen.says), seconds)


def table(results: list[Result]) -> str:
    """Return the text summary: a line for each experiment, and Muster's output below each FINDING."""
    lines = []
    for one in results:
        lines.append(one.line())
        if one.outcome == FINDING:
            lines += [f"    {line}" for line in one.says]
    counts = {kind: sum(one.outcome == kind for one in results) for kind in (PASSED, FINDING, FAILED, LEFT_OUT)}
    return "\n".join([*lines, ", ".join(f"{count} {kind}" for kind, count in counts.items())]) + "\n"


def summary(machine: str, steps: dict[str, float], results: list[Result]) -> str:
    """Return the summary as JSON."""
    shown = {"schema": 1, "machine": machine, "steps": steps, "experiments": [asdict(one) for one in results]}
    return json.dumps(shown, indent=1) + "\n"
