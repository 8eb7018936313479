"""What a judge of one subject hands back: its findings, and what it could not or need not look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..verdict.finding import Finding, fix_with

if TYPE_CHECKING:
    from collections.abc import Iterable

    Outcome = tuple[list[Finding], list[dict[str, str]]]


@dataclass
class Judged:
    """Findings about one node, as they are come to."""

    node: str
    findings: list[Finding] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)

    def fail(self, name: str, summary: str, text: str, command: str = "", **more: Any) -> None:
        self._add(name, "fail", summary, text, command, **more)

    def warn(self, name: str, summary: str, text: str, command: str = "", **more: Any) -> None:
        self._add(name, "warn", summary, text, command, **more)

    def unknown(self, name: str, summary: str, text: str, command: str = "", **more: Any) -> None:
        self._add(name, "unknown", summary, text, command, **more)

    def _add(self, name: str, status: str, summary: str, text: str, command: str, **more: Any) -> None:
        self.findings.append(Finding(name, status, self.node, summary, fix=fix_with(text, command), **more))

    def skip(self, why: str, *names: str) -> None:
        self.skipped += [{"id": name, "why": why} for name in names]

    def skip_all(self, names: Iterable[str], why: str) -> Outcome:
        """Skip a whole subject."""
        self.skip(why, *names)
        return self.outcome

    @property
    def outcome(self) -> Outcome:
        return self.findings, self.skipped


def gigabytes(size: float) -> str:
    """A size as people say it."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{size / least:.3g} {unit}" if size < least * 1000 else f"{size / least:.0f} {unit}"
    return f"{size:.0f} bytes"


def age(seconds: float) -> str:
    """How long ago, as people say it."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = round(seconds / length)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{seconds:.0f} s"
