"""What was kept of earlier runs: the last smoke against the accepted state, the last health, the last drift."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..acceptance.baseline import since
from ..acceptance.metrics import rows
from ..verdict.finding import Finding, add_up
from ..verdict.printable import printable
from ..verdict.words import age, few, plural

OF_A_LAUNCH = ("launch.", "smoke.")
NOT_OF_HEALTH = (*OF_A_LAUNCH, "drift.")
MOST_TEXT = 200
CALM = ("healthy", "degraded")
LAYERS = ("driver", "cuda", "torch", "kernel")


@dataclass(frozen=True)
class PastRun:
    """A run that looked at something. run: its run.json. verdict: its verdict.json. content: smoke.json or drift.json.

    Empty where there is no such run.
    """

    run: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PastRuns:
    """smoke, health, drift: the newest run of each. book: acceptance.json."""

    smoke: PastRun = field(default_factory=PastRun)
    health: PastRun = field(default_factory=PastRun)
    drift: PastRun = field(default_factory=PastRun)
    book: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PastVerdict:
    """Of one kind of run: which, how long ago, its verdict, and a sentence. Without a run there is none but that."""

    run: str = ""
    seconds: float | None = None
    status: str = ""
    sentence: str = ""
    failing: Mapping[str, str] = field(default_factory=dict)

    @property
    def ago(self) -> str:
        return f"{age(max(0.0, self.seconds))} ago" if self.seconds is not None else "at an unknown time"

    @property
    def whole(self) -> str:
        return f"{self.ago}: {self.sentence}" if self.run else self.sentence

    def as_dict(self) -> dict[str, Any]:
        return {"run": self.run, "seconds": self.seconds, "status": self.status, "sentence": self.sentence}


def smoke(kept: PastRun, book: Mapping[str, Any], now: float) -> PastVerdict:
    if not kept.run:
        return PastVerdict(sentence="never run")
    findings = findings_of(kept, lambda one: one.id.startswith(OF_A_LAUNCH))
    status = status_of(findings, kept)
    beside = kept.content.get("accepted")
    beside = beside if isinstance(beside, Mapping) else {}
    values = rows(beside, "values")
    drops = sum(one.get("drop") is True for one in values)
    accepted = f"the state accepted on {str(beside.get('date'))[:10]}"
    if status not in CALM:
        words = first_of(findings, ("fail", "unknown")) or str(kept.run.get("sentence") or "")
    elif beside.get("accepted") is True:
        words = "accepted as the state to compare with"
    elif drops:
        words = f"{plural(drops, 'value')} of {len(values)} worse than {accepted}"
    elif values:
        words = f"as {accepted}"
    else:
        words = "not compared: no state like it is accepted" if book else "no state is accepted yet"
    return PastVerdict(str(kept.run.get("id")), seconds_since(kept.run, now), status, joined(status, words))


def health(kept: PastRun, now: float) -> PastVerdict:
    """failing: by node, the first thing that was found against it."""
    if not kept.run:
        return PastVerdict(sentence="never looked at")
    findings = findings_of(kept, lambda one: not one.id.startswith(NOT_OF_HEALTH))
    status = status_of(findings, kept)
    failing: dict[str, str] = {}
    for one in findings:
        if one.status == "fail":
            failing.setdefault(one.node, one.summary[:MOST_TEXT])
    warnings = sum(one.status == "warn" for one in findings)
    worst = first_of(findings, ("fail", "unknown", "warn"))
    words = f"{plural(warnings, 'warning')}, the first about {worst}" if status == "degraded" else worst
    return PastVerdict(str(kept.run.get("id")), seconds_since(kept.run, now), status, joined(status, words), failing)


def drift(kept: PastRun, now: float) -> PastVerdict:
    """Read as it comes: whoever wrote it may be newer or older than this."""
    if not kept.run:
        return PastVerdict(sentence="never looked for")
    differing = [one for one in rows(kept.content, "differences") if one.get("status") in ("warn", "fail")]
    nodes = list(dict.fromkeys(str(one.get("node")) for one in differing))
    findings = findings_of(kept, lambda one: one.id.startswith("drift."))
    status = status_of(findings, kept)
    if differing:
        words = f"{plural(len(differing), 'difference')} on {few(nodes)}"
    else:
        words = "no difference" if status in CALM else first_of(findings, ("fail", "unknown"))
    return PastVerdict(str(kept.run.get("id")), seconds_since(kept.run, now), status, printable(words)[:MOST_TEXT])


def changed_since_accepted(book: Mapping[str, Any], versions: Mapping[str, Mapping[str, str]]) -> str:
    """What the nodes had when their newest state was accepted, and have no longer."""
    states = sorted(rows(book, "states"), key=lambda state: str(state.get("date")))
    if not states:
        return ""
    # A rank says what it has loaded, with the build behind a plus; health, what is installed.
    now = {node: {name: said[name] for name in LAYERS if name in said} for node, said in versions.items()}
    return since(states[-1], {"versions": now}).strip().removeprefix("Changed since then: ")


def findings_of(kept: PastRun, wanted: Any) -> list[Finding]:
    found = []
    for one in rows(kept.verdict, "findings"):
        try:
            finding = Finding(**one)
        except (TypeError, ValueError, KeyError, AttributeError):
            continue  # of another version of Muster
        if wanted(finding):
            found.append(finding)
    return found


def status_of(findings: list[Finding], kept: PastRun) -> str:
    """Of the step's own findings; of a run that has none, how it ended."""
    return add_up(findings)["status"] if findings else str(kept.run.get("status") or "unknown")


def first_of(findings: list[Finding], statuses: tuple[str, ...]) -> str:
    for status in statuses:
        for one in findings:
            if one.status == status:
                return f"{one.node}: {one.summary}"[:MOST_TEXT]
    return ""


def joined(status: str, words: str) -> str:
    return printable(f"{status}, {words}" if words else status)


def seconds_since(run: Mapping[str, Any], now: float) -> float | None:
    try:
        return now - dt.datetime.fromisoformat(str(run.get("ended") or run.get("began"))).timestamp()
    except ValueError:
        return None
