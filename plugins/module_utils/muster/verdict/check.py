"""A check: one thing that Muster can find, declared once beside the rule that finds it.

    LOST = Check(
        "gpu.lost",
        seen="recording",
        reads="the GPUs on the bus, and those that nvidia-smi lists",
        fires="fail: one on the bus does not answer",
        fix="Drain the node and restart it; if it comes back, the GPU goes to its maker",
    )
    CHECKS = (LOST,)

    def lost(node: Node) -> Iterator[Said]:
        if not node.seen["bus"]:
            yield LOST.skip("the bus cannot be read")
        for slot in node.silent:
            yield LOST.fail(node.name, f"GPU {slot} does not answer", command=f"nvidia-smi -q -i {slot}")

A rule yields findings and skips as it comes to them; `collect` parts them. Each module of rules names in CHECKS what it
answers for: whatever is there is found, passed or skipped. The catalogue (docs/findings.md), and what a verdict says it
looked for, come from these objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from .commands import shell
from .finding import Finding, Skipped, fix_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Said = Finding | Skipped


# The best that has made a check fire, best first; tests/unit/verdict/test_seen.py looks for it.
Seen = Literal["sandbox", "recording", "stand-in", "never"]
SEEN: tuple[Seen, ...] = get_args(Seen)


@dataclass(frozen=True)
class Check:
    """One kind of finding, in words for the user.

    id: stable, dotted, lower-case, written out whole. reads: what is looked at. fires: when it is not a `pass`, with
    the threshold and what it is based on. fix, command: what fixes it, with {fields} that a finding fills by `named`; a
    finding has both unless what was seen asks for a fix of its own. seen: what has made it fire: the fault itself,
    brought about on a node of the sandbox by a test ("sandbox"); a case over the recorded output of a real program or
    kernel ("recording"); a case over what a test made up ("stand-in"), which the real thing may print otherwise; or
    nothing yet ("never").
    """

    id: str
    reads: str
    fires: str
    fix: str = ""
    command: str = ""
    seen: Seen = field(kw_only=True)

    def fail(self, node: str, summary: str, fix: str | None = None, command: str = "", **more: Any) -> Finding:
        """more: named, for the fix that is declared; other fields of Finding (observed, expected, evidence, peer)."""
        return self._finding("fail", node, summary, fix, command, more)

    def warn(self, node: str, summary: str, fix: str | None = None, command: str = "", **more: Any) -> Finding:
        return self._finding("warn", node, summary, fix, command, more)

    def unknown(self, node: str, summary: str, fix: str | None = None, command: str = "", **more: Any) -> Finding:
        return self._finding("unknown", node, summary, fix, command, more)

    def passed(self, node: str, summary: str, **more: Any) -> Finding:
        return Finding(self.id, "pass", node, summary, **more)

    def not_looked(self, node: str, why: str) -> Finding:
        """A skip where only findings are handed back."""
        return Finding(self.id, "skipped", node, why)

    def skip(self, why: str, node: str = "") -> Skipped:
        """One entry of a verdict's coverage: this was not looked for, and why. node: where several are judged."""
        return Skipped(id=self.id, why=why, node=node) if node else Skipped(id=self.id, why=why)

    def _finding(
        self, status: str, node: str, summary: str, fix: str | None, command: str, more: dict[str, Any]
    ) -> Finding:
        named: Mapping[str, object] = more.pop("named", {})
        if fix is None:
            fix, command = self.fix, command or self.command
            fix, command = (fix.format(**named), shell(command, **named)) if named else (fix, command)
        return Finding(self.id, status, node, summary, fix=fix_with(fix, command), **more)


class CheckResults(NamedTuple):
    """What rules have said: findings, and what was not looked for, each in its order."""

    findings: list[Finding]
    skipped: list[Skipped]

    @property
    def clean(self) -> bool:
        """Whether nothing stands against what was looked at."""
        return all(finding.status == "pass" for finding in self.findings)


def collect(said: Iterable[Said]) -> CheckResults:
    judged = CheckResults([], [])
    for one in said:
        if isinstance(one, Finding):
            judged.findings.append(one)
        else:
            judged.skipped.append(one)
    return judged


def skip_all(checks: Iterable[Check], why: str) -> list[Skipped]:
    return [check.skip(why) for check in checks]
