"""Kernel settings: what each must be beside what is there, and the file that says so at the next boot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .model import BaselinePlan, BaselineRequest, BaselineState, SysctlKey


def plan_sysctl(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState) -> None:
    for key in request.sysctl:
        live = seen.sysctl.get(key.key)
        if live is None:
            plan.skip(key.key, "this kernel does not have it")
            continue
        wanted = sysctl_value(key, live)
        if wanted.split() == live.split():
            continue
        if key.key in seen.read_only:
            plan.skip(key.key, f"it cannot be written on this machine, and is {' '.join(live.split())}")
            continue
        shown = " ".join(live.split()) or "empty"
        plan.sysctl.append(key.key)
        plan.differs(f"{key.key} is {shown} and not {wanted}", key.key, shown, wanted)


def sysctl_value(key: SysctlKey, live: str | None) -> str:
    """What the key must be: never less than what somebody else has set where more is meant, nor without their ports."""
    if live is None or key.rule == "equal":
        return key.value
    if key.rule == "contains":
        return ports(f"{live},{key.value}")
    wanted, there = key.value.split(), live.split()
    if len(wanted) != len(there):
        return key.value
    return " ".join(str(max(int(one), int(other))) for one, other in zip(wanted, there, strict=True))


def ports(text: str) -> str:
    """A list of ports as the kernel writes it: sorted, without gaps of nothing, ranges as 1-3."""
    numbers: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def sysctl_text(keys: Iterable[SysctlKey], live: Mapping[str, str | None]) -> str:
    """The text of the file in /etc/sysctl.d. The minus lets a boot go on where a key does not exist."""
    lines = ["# Written by Muster. What was higher on this machine, or reserved by somebody else, was taken over.\n"]
    for key in keys:
        why = f"\n# {key.why.strip()}\n" if key.why else "\n"
        lines.append(f"{why}-{key.key} = {sysctl_value(key, live.get(key.key))}\n")
    return "".join(lines)
