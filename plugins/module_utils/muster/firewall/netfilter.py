"""Parse the output of iptables-save, and trace packets through its rules."""

from __future__ import annotations

import ipaddress
import shlex
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from .walk import WalkStep, led, through, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .walk import Packet, PacketOutcome

# Options that do not decide a match: extensions whose options are parsed separately, and options of targets.
PLAIN_EXTENSIONS = {"tcp", "udp", "multiport", "conntrack", "state", "comment", "addrtype", "icmp", "icmp6"}
OF_TARGETS = {"--reject-with", "--log-prefix", "--log-level", "--to-destination", "--to-ports", "--comment"}
PASSING = {"LOG", "NFLOG", "MARK", "CONNMARK", "CT", "TRACE", "NOTRACK", "TCPMSS", "SET", "ULOG", ""}
ENDS = {
    **{name.upper(): name for name in ("accept", "drop", "reject", "return")},
    **dict.fromkeys(("DNAT", "REDIRECT", "TPROXY", "NETMAP"), "redirect"),
}
# The chains for packets to the node itself, in order.
PATH_IN = (
    ("raw", "PREROUTING"),
    ("mangle", "PREROUTING"),
    ("nat", "PREROUTING"),
    ("mangle", "INPUT"),
    ("filter", "INPUT"),
)
# The chain for packets through the node that ufw changes.
PATH_THROUGH = (("filter", "FORWARD"),)


@dataclass(frozen=True)
class Rule:
    """An iptables rule. others: conditions that Muster cannot interpret."""

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
        """Return whether both rules have the same effect, even if they are written differently."""
        return all(getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__ if name != "text")

    def matches(self, packet: Packet) -> bool | None:
        """Return whether the rule applies to the packet; None if uncertain."""
        if any(fits == (name in self.negated) for name, fits in self._conditions(packet)):
            return False
        return None if self.others or self.sports or self.destination else True

    def _conditions(self, packet: Packet) -> Iterator[tuple[str, bool]]:
        """Yield each condition together with whether the packet meets it."""
        if self.source is not None:
            version, network, mask = self.source
            yield "source", version == packet.version and packet.source_number & mask == network
        if self.proto:
            yield "proto", self.proto == packet.proto
        if self.interface:
            begins = self.interface.endswith("+") and packet.interface.startswith(self.interface[:-1])
            yield "interface", begins or packet.interface == self.interface
        if self.dports:
            yield "dports", any(low <= packet.port <= high for low, high in self.dports)
        if self.states:
            yield "states", "NEW" in self.states
        if self.dst_type:
            yield "dst_type", (self.dst_type == "LOCAL") != bool(packet.leaves_by)
        if self.out_interface:
            pattern = self.out_interface.replace("+", "*")
            yield "out_interface", any(fnmatchcase(name, pattern) for name in packet.leaves_by)


@dataclass
class Chain:
    policy: str = "-"
    rules: list[Rule] = field(default_factory=list)


Tables = dict[str, dict[str, Chain]]


def parse_save(text: str) -> Tables:
    """Parse the output of iptables-save, or one of ufw's files for iptables-restore."""
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
    """Parse a line of iptables-save output that appends a rule."""
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
    """Return the name of the field that the option sets, "" for an option that does not affect matching, "?" for an
    unknown option.
    """
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
    """Return a source as (IP version, network number, mask); None for any source."""
    parsed = ipaddress.ip_network(text, strict=False)
    if parsed.prefixlen == 0:
        return None
    return parsed.version, int(parsed.network_address), int(parsed.netmask)


def ports(text: str) -> tuple[tuple[int, int], ...]:
    """Parse a port list such as 9100,9102:9110 into sorted pairs of first and last port."""
    pairs = []
    for part in text.split(","):
        low, _, high = part.partition(":")
        pairs.append((int(low), int(high or low)))
    return tuple(sorted(pairs))


def _protocol(text: str) -> str:
    return {"all": "", "6": "tcp", "17": "udp", "ipv6-icmp": "icmpv6"}.get(text, text)


def _states(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


def walk_tables(tables: Tables, packet: Packet, origin: str) -> PacketOutcome:
    """Return the outcome of the packet in the iptables tables.

    origin: the command that lists the tables, such as iptables.
    """
    return through(_bases(tables, packet, origin), origin)


def _bases(tables: Tables, packet: Packet, origin: str) -> Iterator[tuple[WalkStep, str, str]]:
    for table, base in PATH_THROUGH if packet.leaves_by else PATH_IN:
        chains = tables.get(table, {})
        if base in chains:
            where = f"{origin} -t {table}"
            yield walk(_steps(chains, base, packet, where)), chains[base].policy, f"{where}, chain {base}"


def _steps(chains: dict[str, Chain], name: str, packet: Packet, where: str) -> Iterator[tuple[bool, WalkStep]]:
    for number, rule in enumerate(chains[name].rules, 1):
        applies = rule.matches(packet)
        if applies is False or rule.target in PASSING:
            continue
        step = WalkStep(ENDS.get(rule.target, "unknown"), rule.text, f"{where}, chain {name}, rule {number}")
        if rule.target in chains:
            step = led(step, walk(_steps(chains, rule.target, packet, where)), goto=rule.goto)
        yield bool(applies), step
