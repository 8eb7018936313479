"""A check describes one problem that Muster can find. It is declared once, next to the rule that finds the problem.

    LOST = Check(
        "gpu.lost",
        seen="recording",
        reads="GPUs on the PCI bus and in nvidia-smi",
        fires="fail: a GPU on the bus does not respond",
        fix="Drain and restart the node; if the fault returns, replace the GPU",
    )
    CHECKS = (LOST,)

    def lost(node: Node) -> Iterator[Said]:
        if not node.seen["bus"]:
            yield LOST.skip("the bus cannot be read")
        for slot in node.silent:
            yield LOST.fail(node.name, f"GPU {slot} does not respond", command=f"nvidia-smi -q -i {slot}")

A rule yields findings and skips in any order; `collect` separates them. Each module of rules lists in CHECKS the checks
that it always reports as found, passed or skipped. The catalogue (docs/findings.md) and the coverage of a verdict are
generated from these objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from .commands import shell
from .finding import Finding, Skipped, fix_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Said = Finding | Skipped


# The most realistic input that made a check fire, most realistic first; tests/unit/verdict/test_seen.py verifies it.
Seen = Literal["sandbox", "recording", "stand-in", "never"]
SEEN: tuple[Seen, ...] = get_args(Seen)


@dataclass(frozen=True)
class Check:
    """One kind of finding, described for the user.

    id: stable, dotted, lower-case, written out in full. reads: the sources of its data. fires: when the check does not
    pass, with the threshold and its basis. fix, command: the default fix, with {fields} that a finding fills by
    `named`. seen: which input has made the check fire: a test that injects the fault into a sandbox node ("sandbox"), a
    test case with recorded output of a real program or kernel ("recording"), a test case with invented output, from
    which real output may differ ("stand-in"), or none yet ("never").
    """

    id: str
    reads: str
    fires: str
    fix: str = ""
    command: str = ""
    seen: Seen = field(kw_only=True)

    def fail(self, node: str, summary: str, fix: str | None = None, command: str = "", **more: Any) -> Finding:
        """Return a failed finding. more: `named` for the fields of the declared fix, or other fields of Finding
        (observed, expected, ...)."""
        return self._finding("fail", node, summary, fix, command, more)

    def warn(self, node: str, summary: str, fix: str | None = None, command: str = "", **more: Any) -> Finding:
        return self._finding("warn", node, summary, fix, command, more)

    def unknown(self, node: str, summary: str, fix: str | None = None, command: str = "", **more: Any) -> Finding:
        return self._finding("unknown", node, summary, fix, command, more)

    def passed(self, node: str, summary: str, **more: Any) -> Finding:
        return Finding(self.id, "pass", node, summary, **more)

    def not_looked(self, node: str, why: str) -> Finding:
        """Return the skip as a finding, for callers that accept only findings."""
        return Finding(self.id, "skipped", node, why)

    def skip(self, why: str, node: str = "") -> Skipped:
        """Return a skip for a verdict's coverage. node: set if the verdict is about several nodes."""
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
    """The findings and skips that rules returned, in order."""

    findings: list[Finding]
    skipped: list[Skipped]

    @property
    def clean(self) -> bool:
        """Return whether every finding passed."""
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
