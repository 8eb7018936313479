"""What the rules of a node do with a packet: iptables-save and `nft -j list ruleset`, read and walked.

A packet here is the first of a new connection that arrives for the node itself. Where a rule looks at something that
cannot be known beforehand (a rate, a mark, a set of addresses that changes), the walk goes both ways; when the ends
differ the outcome is "unknown", and names that rule.
"""

from __future__ import annotations

import ipaddress
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Options of iptables that decide nothing about a match: extensions whose options are read on their own, and what only
# a target uses.
PLAIN_EXTENSIONS = {"tcp", "udp", "multiport", "conntrack", "state", "comment", "addrtype", "icmp", "icmp6"}
OF_TARGETS = {"--reject-with", "--log-prefix", "--log-level", "--to-destination", "--to-ports", "--comment"}
PASSING = {"LOG", "NFLOG", "MARK", "CONNMARK", "CT", "TRACE", "NOTRACK", "TCPMSS", "SET", "ULOG", ""}
REDIRECTING = dict.fromkeys(("DNAT", "REDIRECT", "TPROXY", "NETMAP"), "redirect")
# The chains that a packet for the node itself passes, in their order.
PATH_IN = (
    ("raw", "PREROUTING"),
    ("mangle", "PREROUTING"),
    ("nat", "PREROUTING"),
    ("mangle", "INPUT"),
    ("filter", "INPUT"),
)


@dataclass(frozen=True)
class Packet:
    """The first packet of a connection to the node."""

    proto: str
    source: str
    port: int
    interface: str

    @property
    def version(self) -> int:
        return 6 if ":" in self.source else 4

    @property
    def source_number(self) -> int:
        return int(ipaddress.ip_address(self.source))


@dataclass(frozen=True)
class Outcome:
    """What becomes of a packet: accept, drop, reject, redirect or unknown; and the rule that says so."""

    verdict: str
    place: str = ""
    rule: str = ""

    @property
    def lets_in(self) -> bool:
        return self.verdict == "accept"


@dataclass(frozen=True)
class Rule:
    """One rule of iptables. What was not understood of its conditions is in `others`."""

    text: str
    target: str = ""
    goto: bool = False
    proto: str = ""
    source: tuple[int, int, int] | None = None
    destination: str = ""
    interface: str = ""
    out_interface: str = ""
    dports: tuple[tuple[int, int], ...] = ()
    sports: tuple[tuple[int, int], ...] = ()
    states: frozenset[str] = frozenset()
    dst_type: str = ""
    others: tuple[str, ...] = ()
    negated: frozenset[str] = frozenset()

    @property
    def simple(self) -> bool:
        return not self.others and not self.negated

    def like(self, other: Rule) -> bool:
        """Whether both do the same, however they are written."""
        return all(getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__ if name != "text")

    def matches(self, packet: Packet, source: int) -> bool | None:
        """Whether it applies; None where that cannot be told."""
        checks = [self._source(packet, source), self._proto(packet), self._interface(packet), self._ports(packet)]
        if False in checks:
            return False
        if self.states and not self._flip("states", "NEW" in self.states):
            return False
        if self.dst_type and not self._flip("dst_type", self.dst_type == "LOCAL"):
            return False
        if self.out_interface:
            return False
        if None in checks or self.others or self.sports or self.destination:
            return None
        return True

    def _flip(self, name: str, value: bool) -> bool:
        return value != (name in self.negated)

    def _source(self, packet: Packet, source: int) -> bool:
        if self.source is None:
            return True
        version, network, mask = self.source
        return self._flip("source", version == packet.version and source & mask == network)

    def _proto(self, packet: Packet) -> bool:
        return not self.proto or self._flip("proto", self.proto == packet.proto)

    def _interface(self, packet: Packet) -> bool:
        if not self.interface:
            return True
        if self.interface.endswith("+"):
            return self._flip("interface", packet.interface.startswith(self.interface[:-1]))
        return self._flip("interface", packet.interface == self.interface)

    def _ports(self, packet: Packet) -> bool:
        if not self.dports:
            return True
        return self._flip("dports", any(low <= packet.port <= high for low, high in self.dports))


@dataclass
class Chain:
    policy: str = "-"
    rules: list[Rule] = field(default_factory=list)


Tables = dict[str, dict[str, Chain]]


def parse_save(text: str) -> Tables:
    """Read what iptables-save prints, or one of ufw's files for iptables-restore."""
    tables: Tables = {}
    table: dict[str, Chain] = {}
    for line in text.splitlines():
        if line.startswith("*"):
            table = tables.setdefault(line[1:].strip(), {})
        elif line.startswith(":"):
            name, policy, *_ = line[1:].split()
            table.setdefault(name, Chain()).policy = policy
        elif line.startswith(("-A ", "-I ")):
            name = line.split()[1]
            rules = table.setdefault(name, Chain()).rules
            rules.insert(0 if line.startswith("-I") else len(rules), parse_rule(line))
    return tables


def parse_rule(line: str) -> Rule:
    """Read one line that appends a rule."""
    words = shlex.split(line)[2:]
    known: dict[str, Any] = {}
    others: list[str] = []
    negated: set[str] = set()
    denied = False
    while words:
        word = words.pop(0)
        if word == "!":
            denied = True
            continue
        value = words.pop(0) if words and not words[0].startswith("-") and words[0] != "!" else ""
        name = _read_option(word, value, known)
        if name == "?":
            others.append(f"{'! ' if denied else ''}{word} {value}".strip())
        elif denied and name:
            negated.add(name)
        denied = False
    return Rule(text=line, others=tuple(others), negated=frozenset(negated), **known)


def _read_option(word: str, value: str, known: dict[str, Any]) -> str:
    """Return the field that was read, "" for an option without a say, "?" for one that is not understood."""
    if word in ("-m", "--match"):
        return "" if value in PLAIN_EXTENSIONS else "?"
    if word in OF_TARGETS:
        return ""
    if word in ("-j", "--jump", "-g", "--goto"):
        known["target"] = value
        known["goto"] = word in ("-g", "--goto")
        return ""
    readers: dict[str, tuple[str, Callable[[str], Any]]] = {
        "-s": ("source", network),
        "-i": ("interface", str),
        "-o": ("out_interface", str),
        "-p": ("proto", _protocol),
        "-d": ("destination", str),
        "--dport": ("dports", ports),
        "--dports": ("dports", ports),
        "--sport": ("sports", ports),
        "--sports": ("sports", ports),
        "--dst-type": ("dst_type", str),
        "--ctstate": ("states", _states),
        "--state": ("states", _states),
    }
    if word not in readers:
        return "?"
    name, reader = readers[word]
    try:
        known[name] = reader(value)
    except ValueError:
        return "?"
    return name


def network(text: str) -> tuple[int, int, int] | None:
    """A source as version, number and mask; none for everybody."""
    parsed = ipaddress.ip_network(text, strict=False)
    if parsed.prefixlen == 0:
        return None
    return parsed.version, int(parsed.network_address), int(parsed.netmask)


def ports(text: str) -> tuple[tuple[int, int], ...]:
    """9100,9102:9110 as pairs, in order."""
    pairs = []
    for part in text.split(","):
        low, _, high = part.partition(":")
        pairs.append((int(low), int(high or low)))
    return tuple(sorted(pairs))


def _protocol(text: str) -> str:
    return {"all": "", "6": "tcp", "17": "udp", "ipv6-icmp": "icmpv6"}.get(text, text)


def _states(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


@dataclass(frozen=True)
class Step:
    """The end of a walk through one chain, and the ends that a rule of unknown effect may cause before it."""

    verdict: str
    rule: str
    place: str
    doubts: tuple[Step, ...] = ()


def walk_tables(tables: Tables, packet: Packet, origin: str) -> Outcome:
    """What the tables of iptables do with the packet. `origin` is how the user lists them, such as iptables."""
    source = packet.source_number
    last = Outcome("accept", origin, "no rule")
    for table, base in PATH_IN:
        chains = tables.get(table, {})
        if base not in chains:
            continue
        step = _walk(chains, base, packet, source, f"{origin} -t {table}", 0)
        if step.verdict == "return":
            policy = {"ACCEPT": "accept", "DROP": "drop"}.get(chains[base].policy, "accept")
            step = Step(policy, f"policy {chains[base].policy}", f"{origin} -t {table}, chain {base}", step.doubts)
        for doubt in step.doubts:
            if doubt.verdict != step.verdict:
                return Outcome("unknown", doubt.place, doubt.rule)
        last = Outcome(step.verdict, step.place, step.rule)
        if not last.lets_in:
            return last
    return last


def _walk(chains: dict[str, Chain], name: str, packet: Packet, source: int, where: str, depth: int) -> Step:
    doubts: list[Step] = []
    for number, rule in enumerate(chains[name].rules, 1):
        applies = rule.matches(packet, source)
        if applies is False:
            continue
        place = f"{where}, chain {name}, rule {number}"
        step = _effect(chains, rule, packet, source, where, place, depth)
        if step is None:
            continue
        if applies is None:
            # A return that may or may not happen leads to an end that was not looked for.
            doubts += [Step("unknown", step.rule, step.place) if step.verdict == "return" else step, *step.doubts]
            continue
        if step.verdict == "return" and not rule.goto and rule.target != "RETURN":
            doubts += step.doubts
            continue
        return Step(step.verdict, step.rule, step.place, (*doubts, *step.doubts))
    return Step("return", "", "", tuple(doubts))


def _effect(
    chains: dict[str, Chain], rule: Rule, packet: Packet, source: int, where: str, place: str, depth: int
) -> Step | None:
    """What a rule that applies does; nothing where the packet just goes on."""
    ends = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "reject", "RETURN": "return", **REDIRECTING}
    if rule.target in PASSING:
        return None
    if rule.target in ends:
        return Step(ends[rule.target], rule.text, place)
    if rule.target in chains and depth < 32:
        return _walk(chains, rule.target, packet, source, where, depth + 1)
    return Step("unknown", rule.text, place)
