"""How a packet passes chains of rules, whoever wrote them: iptables and nftables alike.

A packet here is the first of a new connection that arrives for the node itself. Where a rule looks at something that
cannot be known beforehand (a rate, a mark, a set of addresses that changes), the walk goes both ways; when the ends
differ the outcome is "unknown", and names that rule.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Packet:
    """The first packet of a connection to the node."""

    proto: str
    source: str
    port: int
    interface: str

    @cached_property
    def version(self) -> int:
        return 6 if ":" in self.source else 4

    @cached_property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        return ipaddress.ip_address(self.source)

    @cached_property
    def source_number(self) -> int:
        return int(self.address)


@dataclass(frozen=True)
class PacketOutcome:
    """What becomes of a packet: accept, drop, reject, redirect or unknown; and the rule that says so."""

    verdict: str
    place: str = ""
    rule: str = ""

    @property
    def lets_in(self) -> bool:
        return self.verdict == "accept"


@dataclass(frozen=True)
class WalkStep:
    """What a rule or a whole chain comes to: a verdict of PacketOutcome, `return`, or `continue` with the next rule.

    doubts: the ends that rules of unknown effect may cause before it.
    """

    verdict: str
    rule: str = ""
    place: str = ""
    doubts: tuple[WalkStep, ...] = ()


def walk(steps: Iterable[tuple[bool, WalkStep]]) -> WalkStep:
    """Return the end of a chain. steps: of the rules that may apply, whether each certainly does, and what it does."""
    doubts: list[WalkStep] = []
    for certain, step in steps:
        if step.verdict == "continue":
            doubts += step.doubts
        elif certain:
            return replace(step, doubts=(*doubts, *step.doubts))
        else:
            # A return that may or may not happen leads to an end that was not looked for.
            doubts += [replace(step, verdict="unknown") if step.verdict == "return" else step, *step.doubts]
    return WalkStep("return", doubts=tuple(doubts))


def led(rule: WalkStep, end: WalkStep, *, goto: bool) -> WalkStep:
    """Return what a rule that leads to a chain comes to; behind the chain's end a jump goes on, and a goto does not."""
    if end.verdict != "return":
        return end
    return replace(rule, verdict="return" if goto else "continue", doubts=end.doubts)


def through(bases: Iterable[tuple[WalkStep, str, str]], origin: str) -> PacketOutcome:
    """Return the outcome of the chains that the kernel calls by itself, in their order.

    bases: what each of them comes to, its policy and its place. origin: what there is to name where there is no rule.
    """
    last = PacketOutcome("accept", origin, "no rule")
    for end, policy, place in bases:
        step = end
        if end.verdict == "return":
            step = WalkStep("drop" if policy.lower() == "drop" else "accept", f"policy {policy}", place, end.doubts)
        for doubt in step.doubts:
            if doubt.verdict != step.verdict:
                return PacketOutcome("unknown", doubt.place, doubt.rule)
        last = PacketOutcome(step.verdict, step.place, step.rule)
        if not last.lets_in:
            return last
    return last
