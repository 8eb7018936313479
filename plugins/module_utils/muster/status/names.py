"""Abbreviates lists of names and numbers in Slurm's notation: node[1-3,7], 0-23."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


def numbers(given: Iterable[int], width: int = 0) -> str:
    """Format numbers as in 0-3,7. width: minimum number of digits."""
    spans: list[list[int]] = []
    for number in sorted(set(given)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{low:0{width}}" if low == high else f"{low:0{width}}-{high:0{width}}" for low, high in spans)


def together(names: Sequence[str]) -> str:
    """Group names that differ only in their last number. The groups are ordered by their first name."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    for name in names:
        found = NUMBERED.fullmatch(name)
        if not found:
            groups[name, "", -1] = []
            continue
        before, digits, behind = found.groups()
        padded = len(digits) if digits.startswith("0") or (before, behind, len(digits)) in groups else 0
        groups.setdefault((before, behind, padded), []).append(int(digits))
    return ", ".join(_group(*key, found) for key, found in groups.items())


def _group(before: str, behind: str, width: int, found: list[int]) -> str:
    if not found:
        return before
    if len(found) == 1:
        return f"{before}{found[0]:0{max(width, 0)}}{behind}"
    return f"{before}[{numbers(found, max(width, 0))}]{behind}"
