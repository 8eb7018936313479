"""Trace packets through chains of rules, for both iptables and nftables.

A packet is the first packet of a new connection to the node itself. If a rule depends on something unknown (a rate, a
mark, a changing address set), both branches are traced. If the branches end differently, the outcome is "unknown", and
that rule is reported.
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
    """The first packet of a connection to the node, or through the node to another host.

    leaves_by: the interfaces of the way through the node; empty for a packet to the node itself.
    """

    proto: str
    source: str
    port: int
    interface: str
    leaves_by: frozenset[str] = frozenset()

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
    """The outcome of a packet (accept, drop, reject, redirect or unknown), and the rule that decided it."""

    verdict: str
    place: str = ""
    rule: str = ""

    @property
    def lets_in(self) -> bool:
        return self.verdict == "accept"


@dataclass(frozen=True)
class WalkStep:
    """The result of a rule or chain: a verdict of PacketOutcome, `return`, or `continue` to go on with the next rule.

    doubts: possible results of earlier rules whose effect is unknown.
    """

    verdict: str
    rule: str = ""
    place: str = ""
    doubts: tuple[WalkStep, ...] = ()


def walk(steps: Iterable[tuple[bool, WalkStep]]) -> WalkStep:
    """Return the result of a chain. steps: the rules that may apply, each as (certainly applies, effect)."""
    doubts: list[WalkStep] = []
    for certain, step in steps:
        if step.verdict == "continue":
            doubts += step.doubts
        elif certain:
            return replace(step, doubts=(*doubts, *step.doubts))
        else:
            # An uncertain return leads to a result that was not traced.
            doubts += [replace(step, verdict="unknown") if step.verdict == "return" else step, *step.doubts]
    return WalkStep("return", doubts=tuple(doubts))


def led(rule: WalkStep, end: WalkStep, *, goto: bool) -> WalkStep:
    """Return the result of a rule that leads to another chain.

    After that chain, a jump continues with the next rule; a goto does not.
    """
    if end.verdict != "return":
        return end
    return replace(rule, verdict="return" if goto else "continue", doubts=end.doubts)


def through(bases: Iterable[tuple[WalkStep, str, str]], origin: str) -> PacketOutcome:
    """Return the outcome of passing the base chains in order.

    bases: result, policy and place of each chain. origin: the place to report if no rule decides.
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
