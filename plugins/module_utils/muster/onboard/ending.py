"""Summarize an onboarding run: the new members, the rejected nodes and the next command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.commands import playbook
from ..verdict.words import few
from .standing import MEMBER

if TYPE_CHECKING:
    from collections.abc import Mapping

HEALTHY, FAILED = "healthy", "failed"


@dataclass(frozen=True)
class OnboardingOutcome:
    """status: healthy or failed. lines: one line for each node. last: a sentence about all nodes."""

    status: str
    lines: list[str]
    last: str

    @property
    def red(self) -> bool:
        return self.status == FAILED


def end(nodes: Mapping[str, Mapping[str, Any]], *, check: bool) -> OnboardingOutcome:
    """Return the outcome.

    nodes: for each node, its standing, written, accepted, rank, why and notes, as far as known.
    """
    accepted = {name: own for name, own in nodes.items() if own.get("accepted")}
    members = [name for name, own in nodes.items() if own.get("standing") == MEMBER]
    red = {name: own for name, own in nodes.items() if name not in accepted and name not in members}
    notes = [f"{name}: {note}." for name, own in nodes.items() for note in own.get("notes", ())]
    lines = [*notes, *(f"{name} is not a member: {_why(own)}." for name, own in red.items() if len(red) > 1)]
    said = []
    if accepted:
        said.append(f"{_all([_ranked(name, own) for name, own in accepted.items()])} now")
    if members:
        said.append(f"{few(members)} {'is a member' if len(members) == 1 else 'are members'} already")
    if check and not any(own.get("why") for own in red.values()):
        named = few(list(red))
        said.append(f"nothing was changed; run without --check to onboard {named}" if red else "nothing was changed")
        return OnboardingOutcome(HEALTHY, lines, f"CHECKED: {'; '.join(said)}")
    if red:
        name, own = next(iter(red.items()))
        stays = " and stays quarantined" if own.get("written") else ""
        more = f" (and {few([one for one in red if one != name])}, for the reasons above)" if len(red) > 1 else ""
        said.append(f"{name} is not a member{stays}: {_why(own)}{more}. After fixing this, {again_of(red)}")
    word = "ONBOARDED" if accepted else "NOT ONBOARDED" if red else "DONE"
    return OnboardingOutcome(FAILED if red else HEALTHY, lines, f"{word}: {'; '.join(said)}")


def first_finding(verdict: Any) -> str:
    """Return the first finding of a verdict that blocks a launch; "" if there is none."""
    findings = verdict.get("findings") if isinstance(verdict, dict) else None
    for status in ("fail", "unknown"):
        for one in findings or ():
            if one["status"] == status:
                return f"{one['node']}: {one['summary']}"
    return str(verdict["summary"]) if isinstance(verdict, dict) else ""


def again_of(red: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the command that repeats the onboarding.

    For a node that is already in the inventory, its name is enough.
    """
    if all(own.get("written") for own in red.values()):
        return f"run: {playbook('playbooks/onboard.yml', node=','.join(red))}"
    return "run the same command again"


def _ranked(name: str, own: Mapping[str, Any]) -> str:
    rank = own.get("rank")
    return f"{name} is a member" + (f" (node rank {rank})" if rank is not None else "")


def _all(parts: list[str]) -> str:
    return " and ".join(parts)


def _why(own: Mapping[str, Any]) -> str:
    why = str(own.get("why") or "the run ended before the node was accepted")
    return why.strip().rstrip(".")
