"""Results of earlier runs: the last smoke test compared with the accepted state, the last health check and the last
drift check."""

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
    """A past run; empty if there is none. run: its run.json. verdict: its verdict.json. content: its smoke.json or
    drift.json."""

    run: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PastRuns:
    """The past runs that the status screen shows. smoke, health, drift: the newest run of each kind. book: the content
    of acceptance.json."""

    smoke: PastRun = field(default_factory=PastRun)
    health: PastRun = field(default_factory=PastRun)
    drift: PastRun = field(default_factory=PastRun)
    book: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PastVerdict:
    """The newest run of one kind, with its id, age, verdict and a sentence. If there is no such run, only the sentence
    is set."""

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
        words = "accepted as the reference state"
    elif drops:
        words = f"{plural(drops, 'value')} of {len(values)} worse than {accepted}"
    elif values:
        words = f"matches {accepted}"
    else:
        words = "not compared: no accepted state has this layout" if book else "no state accepted yet"
    return PastVerdict(str(kept.run.get("id")), seconds_since(kept.run, now), status, joined(status, words))


def health(kept: PastRun, now: float) -> PastVerdict:
    """Return the verdict of the last health run. failing: the first failed finding of each node."""
    if not kept.run:
        return PastVerdict(sentence="never checked")
    findings = findings_of(kept, lambda one: not one.id.startswith(NOT_OF_HEALTH))
    status = status_of(findings, kept)
    failing: dict[str, str] = {}
    for one in findings:
        if one.status == "fail":
            failing.setdefault(one.node, one.summary[:MOST_TEXT])
    warnings = sum(one.status == "warn" for one in findings)
    worst = first_of(findings, ("fail", "unknown", "warn"))
    words = f"{plural(warnings, 'warning')}, the first on {worst}" if status == "degraded" else worst
    return PastVerdict(str(kept.run.get("id")), seconds_since(kept.run, now), status, joined(status, words), failing)


def drift(kept: PastRun, now: float) -> PastVerdict:
    """Return the verdict of the last drift run. Another version of Muster may have written its file."""
    if not kept.run:
        return PastVerdict(sentence="never checked")
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
    """Describe the versions that changed since the newest accepted state."""
    states = sorted(rows(book, "states"), key=lambda state: str(state.get("date")))
    if not states:
        return ""
    # A rank reports the loaded version, with the build after a plus sign; health reports the installed one.
    now = {node: {name: said[name] for name in LAYERS if name in said} for node, said in versions.items()}
    return since(states[-1], {"versions": now})


def findings_of(kept: PastRun, wanted: Any) -> list[Finding]:
    found = []
    for one in rows(kept.verdict, "findings"):
        try:
            finding = Finding(**one)
        except (TypeError, ValueError, KeyError, AttributeError):
            continue  # written by another version of Muster
        if wanted(finding):
            found.append(finding)
    return found


def status_of(findings: list[Finding], kept: PastRun) -> str:
    """Return the status that the findings of the step add up to. If there are no findings, return the status of the
    run."""
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
