"""Trace packets through the nftables tables in the output of `nft -j list ruleset`.

Tables that iptables can list are evaluated in netfilter.py, because nft does not show their iptables matches.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .walk import WalkStep, led, through, walk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from .walk import Packet, PacketOutcome

Json = dict[str, Any]

HOOKS = ("ingress", "prerouting", "input")
# Statements that do not decide about the packet, and those that may end the rule: rates, counts, iptables matches,
# rate-limited set updates.
PASSING = {"counter", "log", "mangle", "ct timeout", "ct helper", "notrack", "last"}
OPAQUE = {"limit", "quota", "xt", "ct count", "meter", "set"}
ENDS = {
    **{end: end for end in ("accept", "drop", "reject", "return", "continue", "redirect")},
    **dict.fromkeys(("dnat", "tproxy", "fwd"), "redirect"),
}


@dataclass(frozen=True)
class BaseChain:
    """A chain attached to a kernel hook."""

    family: str
    table: str
    name: str
    hook: str
    priority: int
    policy: str

    def takes(self, packet: Packet) -> bool:
        return self.family in ("inet", "netdev") or self.family == ("ip6" if packet.version == 6 else "ip")


class Ruleset:
    """All tables of a node, parsed once and used for all packets."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self.rules: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
        self.sets: dict[tuple[str, str, str], list[Any]] = {}
        bases = []
        for entry in entries:
            ((kind, about),) = entry.items()
            if kind in ("set", "map"):
                self.sets[about["family"], about["table"], about["name"]] = about.get("elem", [])
            elif kind == "rule":
                self.rules.setdefault((about["family"], about["table"], about["chain"]), []).append(about)
            elif kind == "chain" and about.get("hook") in HOOKS:
                priority = about["prio"] if isinstance(about["prio"], int) else 0
                place = (about["family"], about["table"], about["name"])
                bases.append(BaseChain(*place, about["hook"], priority, about.get("policy", "accept")))
        # In the order of processing.
        self.bases = sorted(bases, key=lambda base: (HOOKS.index(base.hook), base.priority))

    def outcome(self, packet: Packet, without: Collection[tuple[str, str]] = ()) -> PacketOutcome:
        """Return the outcome of the packet in all tables. Tables in `without`, as (family, name), are skipped."""
        return through(self._bases(packet, without), "nft")

    def _bases(self, packet: Packet, without: Collection[tuple[str, str]]) -> Iterator[tuple[WalkStep, str, str]]:
        rules = _Rules(self, packet)
        for base in self.bases:
            if (base.family, base.table) not in without and base.takes(packet):
                end = walk(rules.steps((base.family, base.table), base.name))
                yield end, base.policy, f"nft {base.family} {base.table}, chain {base.name}"


class _Rules:
    """The rules of a ruleset, evaluated for one packet."""

    def __init__(self, ruleset: Ruleset, packet: Packet) -> None:
        self.packet = packet
        self.rules = ruleset.rules
        self.sets = ruleset.sets

    def steps(self, table: tuple[str, str], chain: str) -> Iterator[tuple[bool, WalkStep]]:
        """Yield the effects of the rules that may apply to the packet, each with whether the rule certainly applies."""
        for rule in self.rules.get((*table, chain), []):
            place = f"nft {rule['family']} {rule['table']}, chain {chain}, handle {rule['handle']}"
            unsure = WalkStep("unknown", in_words(rule["expr"]), place)
            certain = True
            for statement in rule["expr"]:
                ((kind, about),) = statement.items()
                if kind in PASSING:
                    continue
                applies: bool | None = None
                if kind == "match":
                    applies = self.match(table, about)
                elif kind == "vmap":
                    verdict = self.mapped(table, about)
                    applies = verdict == {}
                    if verdict is None or verdict:
                        yield certain and verdict is not None, self.effect(table, verdict or {}, unsure)
                        break
                elif kind not in OPAQUE:
                    yield certain, self.effect(table, statement, unsure)
                    break
                if applies is False:
                    break
                certain = certain and applies is True

    def effect(self, table: tuple[str, str], statement: Json, unsure: WalkStep) -> WalkStep:
        """Return the effect of a rule's final statement; `unsure` if the effect is unknown."""
        kind = next(iter(statement), "")
        if kind in ENDS:
            return replace(unsure, verdict=ENDS[kind])
        if kind in ("jump", "goto"):
            return led(unsure, walk(self.steps(table, statement[kind]["target"])), goto=kind == "goto")
        return unsure

    def match(self, table: tuple[str, str], about: Mapping[str, Any]) -> bool | None:
        mine = self.value(about["left"])
        if mine is None or about["op"] not in ("==", "in", "!=", "!"):
            return None
        if mine == ():  # the packet's protocol does not have this field
            return False
        found = self.among(table, mine, about["right"])
        return found if found is None else found != about["op"].startswith("!")

    def mapped(self, table: tuple[str, str], about: Mapping[str, Any]) -> Json | None:
        """Return the verdict that a map has for the packet; {} if the map has no entry for it, None if unknown."""
        mine = self.value(about["key"])
        if mine is None:
            return None
        data = about["data"]
        pairs = self.sets.get((*table, data[1:]), []) if isinstance(data, str) else data.get("set", [])
        for key, verdict in pairs:
            found = mine != () and self.among(table, mine, key)
            if found is None:
                return None
            if found:
                return dict(verdict)
        return {}

    def value(self, left: Any) -> Any:
        """Return the packet's value of an expression; () if the packet cannot have this field, None if the value is
        unknown.
        """
        packet = self.packet
        ((kind, about),) = left.items() if isinstance(left, dict) else (("", {}),)
        if kind == "meta":
            return {
                "iif": packet.interface,
                "iifname": packet.interface,
                "l4proto": packet.proto,
                "nfproto": f"ipv{packet.version}",
                "protocol": "ip6" if packet.version == 6 else "ip",
                "pkttype": "host",
            }.get(about["key"])
        if kind == "ct":
            return "new" if about["key"] == "state" else None
        if kind == "fib":
            return "local" if about.get("result") == "type" and about.get("flags") == ["daddr"] else None
        if kind == "concat":
            parts = [self.value(part) for part in about]
            return () if () in parts else parts
        if kind == "payload":
            return self.field(about.get("protocol"), about.get("field"))
        if kind == "&" and isinstance(about[0], dict) and about[0].get("payload", {}).get("field") == "flags":
            return () if packet.proto != "tcp" else _flags(about[1]) & {"syn"}
        return None

    def field(self, protocol: object, name: object) -> Any:
        packet = self.packet
        if protocol in ("ip", "ip6"):
            if (protocol == "ip6") != (packet.version == 6):
                return ()
            return {"saddr": packet.address, "protocol": packet.proto, "nexthdr": packet.proto}.get(str(name))
        if protocol in (packet.proto, "th"):
            return {"dport": packet.port, "flags": "syn"}.get(str(name))
        return () if protocol in ("tcp", "udp", "icmp", "icmpv6", "sctp") else None

    def among(self, table: tuple[str, str], mine: Any, right: Any) -> bool | None:
        """Return whether the packet's value equals the other value or is contained in it; None if unknown."""
        if isinstance(mine, frozenset):
            return mine == _flags(right)
        if isinstance(right, dict) and "concat" in right and isinstance(mine, list):
            answers = [self.among(table, *pair) for pair in zip(mine, right["concat"], strict=True)]
            return False if False in answers else None if None in answers else True
        if isinstance(right, list):
            return _any([self.among(table, mine, each) for each in right])
        if isinstance(right, dict):
            if "set" in right:
                return self.among(table, mine, right["set"])
            if "elem" in right:
                return self.among(table, mine, right["elem"]["val"])
            if "range" in right:
                low, high = (_comparable(mine, end) for end in right["range"])
                return None if low is None or high is None else bool(low <= mine <= high)
            if "prefix" in right:
                network = ipaddress.ip_network(f"{right['prefix']['addr']}/{right['prefix']['len']}", strict=False)
                return mine in network if isinstance(mine, (ipaddress.IPv4Address, ipaddress.IPv6Address)) else None
            return None
        if isinstance(right, str) and right.startswith("@"):
            known = self.sets.get((*table, right[1:]))
            return None if known is None else self.among(table, mine, known)
        if isinstance(right, str) and isinstance(mine, str) and right.endswith("*"):
            return mine.startswith(right[:-1])
        other = _comparable(mine, right)
        return None if other is None else bool(mine == other)


def _flags(side: Any) -> frozenset[str]:
    """Return the TCP flags named in an expression: a single flag, a list, or flags joined with |."""
    if isinstance(side, dict):
        return _flags(side.get("|", []))
    if isinstance(side, list):
        return frozenset().union(*map(_flags, side))
    return frozenset({side} if isinstance(side, str) else ())


def _any(answers: list[bool | None]) -> bool | None:
    if True in answers:
        return True
    return None if None in answers else False


def _comparable(mine: Any, other: Any) -> Any:
    """Return the other value converted to the type of the packet's value; None if it cannot be converted."""
    if isinstance(mine, (ipaddress.IPv4Address, ipaddress.IPv6Address)):
        try:
            return type(mine)(other)
        except ValueError:
            return None
    return other if isinstance(other, type(mine)) else None


def in_words(expression: Sequence[Mapping[str, Any]]) -> str:
    """Return the rule as readable text, similar to nft's syntax."""
    words = []
    for statement in expression:
        ((kind, about),) = statement.items()
        if kind == "match":
            op = "" if about["op"] in ("==", "in") else f"{about['op']} "
            words.append(f"{_side(about['left'])} {op}{_side(about['right'])}")
        elif kind == "vmap":
            words.append(f"{_side(about['key'])} vmap {_side(about['data'])}")
        elif kind in ("jump", "goto"):
            words.append(f"{kind} {about['target']}")
        elif kind != "counter":
            words.append(kind)
    return " ".join(words)


def _side(side: Any) -> str:
    if isinstance(side, list):
        return "{ " + ", ".join(_side(each) for each in side) + " }"
    if not isinstance(side, dict):
        return str(side)
    ((kind, about),) = side.items()
    if kind == "payload":
        return f"{about.get('protocol', '')} {about.get('field', '')}".strip()
    if kind == "concat":
        return " . ".join(_side(each) for each in about)
    if kind in ("meta", "ct"):
        return str(about["key"]) if kind == "meta" else f"ct {about['key']}"
    if kind == "prefix":
        return f"{about['addr']}/{about['len']}"
    if kind == "range":
        return f"{about[0]}-{about[1]}"
    if kind in ("set", "elem"):
        return _side(about if kind == "set" else about["val"])
    return json.dumps(side)
