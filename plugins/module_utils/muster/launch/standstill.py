"""Find the rank that blocks a launch without output, from the process states or the stacks of the ranks."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..verdict.finding import evidence
from .endings import Ending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import Finding, FindingEvidence
    from .failure import NodeReport
    from .messages import RankState

PROCESS_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible wait (disk, network file system or driver)",
    "T": "stopped by a signal (SIGSTOP)",
    "t": "stopped by a debugger",
    "Z": "dead, not yet reaped",
    "X": "dead",
    "": "gone",
}
# A rank in one of these states cannot continue; a sleeping or running rank may be waiting for it.
STUCK_STATES = ("T", "t", "D", "Z", "X", "")
STACK_LINE = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')
# A rank in one of these files waits for its peers; they wait for a rank in another file.
COLLECTIVE = re.compile(r"torch/distributed/|torch/nn/parallel/distributed|torch/autograd/")
TORCH = re.compile(r"-packages/torch/(?!nn/modules/)")
STACK_LINES = 8  # of each stack, shown


@dataclass(frozen=True)
class Stuck:
    """A rank that cannot continue.

    state: the kernel's one-letter process state. wchan: the kernel function in which the rank waits.
    """

    node: str
    rank: int
    local_rank: int
    state: str
    wchan: str = ""

    @property
    def sentence(self) -> str:
        where = f", in {self.wchan}" if self.wchan not in ("", "0") else ""
        meaning = PROCESS_STATES.get(self.state, self.state)
        return f"rank {self.rank} (local rank {self.local_rank}) is stalled: {meaning}{where}"


@dataclass(frozen=True)
class Stack:
    """The innermost stack lines of a rank's main thread, innermost first."""

    node: str
    rank: int
    local_rank: int
    lines: list[str]


def standing_still(ranks_by_node: Mapping[str, Sequence[RankState]]) -> list[Stuck]:
    """Return the ranks that are stopped, dead or in an uninterruptible wait.

    If there are none, only stacks can show the cause.
    """
    found = [
        Stuck(name, rank["rank"], rank["local_rank"], rank["state"], rank.get("wchan", ""))
        for name, ranks in ranks_by_node.items()
        for rank in ranks
        if rank.get("state", "S") in STUCK_STATES
    ]
    return sorted(found, key=lambda one: one.rank)


def findings(head: str, why: str, stuck: Sequence[Stuck], reports: Sequence[NodeReport], log_dir: str) -> list[Finding]:
    """Return findings about ranks that cannot continue or that are not in the same collective as the others.

    If there are no such ranks, the finding is reported for the head node.
    """
    check = Ending.STALLED.check
    stacks = stacks_of(reports)
    proof = shown(stacks)
    if stuck:
        return [
            check.fail(
                one.node,
                f"{one.sentence}; {why}",
                fix="Its logs",
                command=log_dir,
                observed=f"state {one.state}",
                evidence=proof,
            )
            for one in stuck
        ]
    elsewhere = [stack for stack in stacks if stack.lines and not waits(stack.lines)]
    if elsewhere and any(waits(stack.lines) for stack in stacks):
        return [
            check.fail(
                stack.node,
                f"rank {stack.rank} (local rank {stack.local_rank}) blocks the others, which wait in a collective:"
                f" rank {stack.rank} is at {stack.lines[0].strip()}; {why}",
                fix="Its logs",
                command=log_dir,
                evidence=proof,
            )
            for stack in elsewhere
        ]
    return [check.fail(head, why, fix="Its logs", command=log_dir, evidence=proof)]


def stacks_of(reports: Sequence[NodeReport]) -> list[Stack]:
    """Return the stacks that ranks printed to stderr, in log order."""
    return [
        Stack(report.node, report.first_rank + int(local), int(local), last_stack(text))
        for report in reports
        for local, text in report.stderr.items()
    ]


def shown(stacks: Sequence[Stack]) -> list[FindingEvidence]:
    return [
        proof
        for stack in sorted(stacks, key=lambda one: one.rank)
        if stack.lines
        for proof in evidence(f"stack of rank {stack.rank} ({stack.node})", "\n".join(stack.lines))
    ]


def waits(stack: Sequence[str]) -> bool:
    """Return whether the rank waits in a collective, according to the top stack frames that are in torch.

    Frames below them are not checked, because they can be in the script's model.
    """
    at_the_top = itertools.takewhile(TORCH.search, stack)
    return any(COLLECTIVE.search(line) for line in at_the_top)


def last_stack(stderr: str) -> list[str]:
    """Return the innermost lines of the main thread's last stack in faulthandler output (most recent call first)."""
    stack: list[str] = []
    for line in stderr.splitlines():
        if line.endswith("(most recent call first):") and "C stack" not in line:  # C stacks since Python 3.14
            stack = []
        elif STACK_LINE.match(line):
            stack.append(line)
    return stack[:STACK_LINES]
