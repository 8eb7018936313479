"""Runs as slurmd's health check, prolog and epilog: drains and resumes this node."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING

from ansible.module_utils.muster.watch.drain import SlurmNode, SlurmStep, decide

from ..members.quarantine import kept
from ..tools.run import run

if TYPE_CHECKING:
    from ansible.module_utils.muster.watch.answer import CheckAnswer

# A controller that does not respond must not hold up a prolog.
SECONDS = 5.0


HOOKS = HEALTH, PROLOG, EPILOG = "health", "prolog", "epilog"
HOLDS = 1  # the exit status of a prolog after which no job starts


def act(answer: CheckAnswer, hook: str) -> int:
    """Drain or resume this node in Slurm, print what was done, and return the exit status of the hook.

    A prolog that ends with 1 makes Slurm requeue the job and drain the node, so this happens only if the node is
    drained by Muster anyway.
    """
    step, done = _step(answer)
    sys.stdout.write(f"{done}\n" if done else "")
    return HOLDS if hook == PROLOG and step.holds else 0


def _step(answer: CheckAnswer) -> tuple[SlurmStep, str]:
    own = os.environ.get("SLURMD_NODENAME") or platform.node().partition(".")[0]
    listed = run("scontrol", "-o", "show", "nodes", seconds=SECONDS)
    if listed.why:
        return SlurmStep(), f"the state of the node in Slurm is unknown: {listed.why}"
    nodes = [node for line in listed.text.splitlines() if (node := SlurmNode.read(line))]
    marked = kept()
    step = decide(answer, nodes, own, None if marked is None else marked.get("reason", ""))
    if step.drain:
        done = _update(own, "State=DRAIN", f"Reason={step.drain}")
        return step, f"drained: {step.drain}" if not done else f"could not be drained: {done}"
    if step.resume:
        done = _update(own, "State=RESUME")
        return step, "resumed" if not done else f"could not be resumed: {done}"
    return step, step.note


def _update(node: str, *words: str) -> str:
    return run("scontrol", "update", f"NodeName={node}", *words, seconds=SECONDS).why
