"""What the tables of nftables do with a packet: the output of `nft -j list ruleset`, walked.

What iptables shows as well is left to muster/netfilter.py: matches of iptables are opaque here.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .netfilter import Outcome, Step

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .netfilter import Packet

Json = dict[str, Any]

HOOKS = ("ingress", "prerouting", "input")
# Statements that decide nothing about the packet.
PASSING = {"counter", "log", "mangle", "meter", "ct timeout", "ct helper", "notrack", "set", "ct count", "last"}
ENDS = {"accept": "accept", "drop": "drop", "reject": "reject", "return": "return"}
REDIRECTS = {"dnat", "redirect", "tproxy", "fwd"}
UNKNOWN = None


@dataclass(frozen=True)
class Base:
    """A chain that the kernel calls by itself."""

    family: str
    table: str
    name: str
    hook: str
    priority: int
    policy: str

    def takes(self, packet: Packet) -> bool:
        return self.family in ("inet", "netdev") or self.family == ("ip6" if packet.version == 6 else "ip")


class Ruleset:
    """All tables of a node, read once; each packet walks through them by itself."""

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
                bases.append(Base(*place, about["hook"], priority, about.get("policy", "accept")))
        # In the order in which a packet passes them.
        self.bases = sorted(bases, key=lambda base: (HOOKS.index(base.hook), base.priority))

    def outcome(self, packet: Packet, without: Collection[tuple[str, str]] = ()) -> Outcome:
        """What becomes of the packet in all tables but those in `without`, given as family and name."""
        walk = _Walk(self, packet)
        last = Outcome("accept", "nft", "no rule")
        for base in self.bases:
            if (base.family, base.table) in without or not base.takes(packet):
                continue
            where = f"nft {base.family} {base.table}"
            step = walk.chain((base.family, base.table), base.name, 0)
            if step.verdict == "return":
                step = Step(base.policy, f"policy {base.policy}", f"{where}, chain {base.name}", step.doubts)
            for doubt in step.doubts:
                if doubt.verdict != step.verdict:
                    return Outcome("unknown", doubt.place, doubt.rule)
            last = Outcome(step.verdict, step.place, step.rule)
            if not last.lets_in:
                return last
        return last


class _Walk:
    def __init__(self, ruleset: Ruleset, packet: Packet) -> None:
        self.packet = packet
        self.rules = ruleset.rules
        self.sets = ruleset.sets

    def chain(self, table: tuple[str, str], name: str, depth: int) -> Step:
        doubts: list[Step] = []
        for rule in self.rules.get((*table, name), []):
            certain, step = self.rule(table, rule, depth)
            if step is None:
                continue
            if not certain:
                doubts += [Step("unknown", step.rule, step.place) if step.verdict == "return" else step, *step.doubts]
                continue
            if step.verdict == "continue":
                doubts += step.doubts
                continue
            return Step(step.verdict, step.rule, step.place, (*doubts, *step.doubts))
        return Step("return", "", "", tuple(doubts))

    def rule(self, table: tuple[str, str], rule: Mapping[str, Any], depth: int) -> tuple[bool, Step | None]:
        """Whether it certainly applies, and what it then does; nothing where the packet just goes on."""
        certain = True
        place = f"nft {rule['family']} {rule['table']}, chain {rule['chain']}, handle {rule['handle']}"
        text = told(rule["expr"])
        for statement in rule["expr"]:
            ((kind, about),) = statement.items()
            if kind == "match":
                applies = self.match(table, about)
                if applies is False:
                    return certain, None
                certain = certain and applies is True
            elif kind == "vmap":
                verdict = self.mapped(table, about)
                if verdict is UNKNOWN:
                    return False, Step("unknown", text, place)
                if verdict:
                    return certain, self.effect(table, verdict, text, place, depth)
            elif kind in ("limit", "quota", "xt"):
                certain = False
            elif kind not in PASSING:
                return certain, self.effect(table, statement, text, place, depth)
        return certain, None

    def effect(self, table: tuple[str, str], statement: Json, text: str, place: str, depth: int) -> Step | None:
        ((kind, about),) = statement.items()
        if kind in ENDS:
            return Step(ENDS[kind], text, place)
        if kind in REDIRECTS:
            return Step("redirect", text, place)
        if kind in ("jump", "goto") and depth < 32:
            step = self.chain(table, about["target"], depth + 1)
            if kind == "jump" and step.verdict == "return":
                return Step("continue", step.rule, step.place, step.doubts)
            return step
        if kind == "continue":
            return None
        return Step("unknown", text, place)

    def match(self, table: tuple[str, str], about: Mapping[str, Any]) -> bool | None:
        mine = self.value(about["left"])
        if mine is UNKNOWN:
            return None
        if mine == ():  # a packet of another protocol has no such field
            return False
        found = self.among(table, mine, about["right"])
        if found is None or about["op"] not in ("==", "in", "!="):
            return None
        return not found if about["op"] == "!=" else found

    def mapped(self, table: tuple[str, str], about: Mapping[str, Any]) -> Json | None:
        """The verdict of a map; {} when it holds none for this packet, none when that cannot be told."""
        mine = self.value(about["key"])
        if mine is UNKNOWN:
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
        """What the packet has there; () for a field that it cannot have, none where that cannot be told."""
        packet = self.packet
        if not isinstance(left, dict):
            return UNKNOWN
        ((kind, about),) = left.items()
        if kind == "meta":
            return {
                "iif": packet.interface,
                "iifname": packet.interface,
                "l4proto": packet.proto,
                "nfproto": f"ipv{packet.version}",
                "protocol": "ip6" if packet.version == 6 else "ip",
                "pkttype": "host",
            }.get(about["key"], UNKNOWN)
        if kind == "ct":
            return "new" if about["key"] == "state" else UNKNOWN
        if kind == "fib":
            return "local" if about.get("result") == "type" and about.get("flags") == ["daddr"] else UNKNOWN
        if kind == "payload":
            return self.field(about.get("protocol"), about.get("field"))
        if kind == "&" and isinstance(about[0], dict) and about[0].get("payload", {}).get("field") == "flags":
            flags = about[1] if isinstance(about[1], list) else [about[1]]
            return () if packet.proto != "tcp" else "syn" if "syn" in flags else "none"
        return UNKNOWN

    def field(self, protocol: object, name: object) -> Any:
        packet = self.packet
        if protocol in ("ip", "ip6"):
            if (protocol == "ip6") != (packet.version == 6):
                return ()
            own = {"saddr": ipaddress.ip_address(packet.source), "protocol": packet.proto, "nexthdr": packet.proto}
            return own.get(str(name), UNKNOWN)
        if protocol in ("tcp", "udp", "th"):
            if protocol not in ("th", packet.proto):
                return ()
            return {"dport": packet.port, "flags": "syn"}.get(str(name), UNKNOWN)
        return () if protocol in ("icmp", "icmpv6", "sctp", "dccp", "udplite", "arp") else UNKNOWN

    def among(self, table: tuple[str, str], mine: Any, right: Any) -> bool | None:
        """Whether the packet's value is the other, or in it."""
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


def _any(answers: list[bool | None]) -> bool | None:
    if True in answers:
        return True
    return None if None in answers else False


def _comparable(mine: Any, other: Any) -> Any:
    """The other value as the packet's kind of value; none where there is no such thing."""
    if isinstance(mine, (ipaddress.IPv4Address, ipaddress.IPv6Address)):
        try:
            return type(mine)(other)
        except ValueError:
            return None
    return other if isinstance(other, type(mine)) else None


def told(expression: Sequence[Mapping[str, Any]]) -> str:
    """A rule for people, close to how nft writes it."""
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
    if kind in ("meta", "ct"):
        return str(about["key"]) if kind == "meta" else f"ct {about['key']}"
    if kind == "prefix":
        return f"{about['addr']}/{about['len']}"
    if kind == "range":
        return f"{about[0]}-{about[1]}"
    if kind in ("set", "elem"):
        return _side(about if kind == "set" else about["val"])
    return json.dumps(side)
