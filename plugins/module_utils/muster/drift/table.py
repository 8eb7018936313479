"""Format the result of a drift check for the terminal. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.words import few, plural
from .judge import ACCEPT, OF_THE_INVENTORY, REPAIR, said
from .repair import by_hand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.finding import Finding
    from .judge import Drifted

WORDS = {"fail": "FAIL", "warn": "warn", "unknown": "????", "pass": "ok  "}
MOST_BY_HAND = 5
LONGEST = 100  # characters of the observed and expected values


def table(
    drifted: Sequence[Drifted], statuses: Sequence[str], others: Sequence[Finding], skipped: Mapping[str, str]
) -> list[str]:
    """Return the table. statuses: the status of each difference. others: what was not checked, and warnings that are
    no differences. skipped: why the record is missing, by node.
    """
    nodes = [one.difference.node for one in drifted] + [one.node for one in others]
    wide = max(map(len, nodes), default=0)
    kinds = max((len(one.difference.check.id) for one in drifted), default=0)
    lines: list[str] = []
    for one, status in zip(drifted, statuses, strict=True):
        difference = one.difference
        lines.append(f"{WORDS[status]} {difference.node:{wide}}  {difference.check.id:{kinds}}  {difference.what}")
        lines += [f"     {'':{wide}}  {'':{kinds}}  {line}" for line in _below(one)]
    lines += [f"{WORDS[one.status]} {one.node:{wide}}  {one.summary}" for one in others]
    lines += [f"     {few(names)}: {why}" for why, names in _by_why(skipped).items()]
    return lines


def _below(one: Drifted) -> Iterator[str]:
    difference = one.difference
    if (difference.observed or difference.expected) and not difference.what.endswith(difference.expected or "\n"):
        yield f"seen: {_cut(difference.observed)}; expected: {_cut(difference.expected)}"
    source = f" ({one.origin.source})" if one.origin.source else ""
    yield f"{said(one.origin)}{source}"


def _cut(text: str) -> str:
    return (text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…") or "nothing"


def _by_why(skipped: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node, why in skipped.items():
        found.setdefault(f"not compared with the last installation: {why}", []).append(node)
    return found


def advice(drifted: Sequence[Drifted], statuses: Sequence[str]) -> list[str]:
    """Return the commands to run next: one to restore the state with a step, and one to accept the change."""
    failed = [one.difference for one, status in zip(drifted, statuses, strict=True) if status == "fail"]
    lines = []
    if any(one.tag for one in failed):
        lines.append(f"To restore the state of the inventory: {REPAIR}")
    lines += [f"To restore the recorded version: {line}" for line in filter(None, map(by_hand, failed))][:MOST_BY_HAND]
    if any(one.check not in OF_THE_INVENTORY for one in failed):
        lines.append(f"To accept intended changes since the last installation: {ACCEPT}")
    return lines


def summary(
    nodes: Sequence[str], drifted: Sequence[Drifted], statuses: Sequence[str], others: Sequence[Finding]
) -> str:
    """Return a summary on one line. others: findings that are no differences."""
    failed = [one.difference for one, status in zip(drifted, statuses, strict=True) if status == "fail"]
    warned = [*statuses, *(one.status for one in others)].count("warn")
    where = list(dict.fromkeys(one.node for one in failed))
    lost = list(dict.fromkeys(one.node for one in others if one.status == "unknown"))
    parts = []
    if failed:
        parts.append(f"{plural(len(failed), 'difference')} on {few(where)}: {failed[0].what} on {failed[0].node}")
        if len(failed) > 1:
            parts[-1] += f", and {len(failed) - 1} more"
    else:
        parts.append(f"no drift on {plural(len(set(nodes) - set(lost)), 'node')}")
    if lost:
        parts.append(f"not fully checked: {few(lost)}")
    if warned:
        parts.append(f"{plural(warned, 'warning')}")
    return "; ".join(parts)
