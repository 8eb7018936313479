"""/etc/hosts: what belongs into it for the cluster, and what may stay as it is. Pure.

A managed block holds the name and the cluster address of every node; the node's own line carries its hostname as well.
These names, and only these, are taken off the lines of loopback addresses. Everything else is kept byte for byte.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BEGIN = "# BEGIN muster: the nodes of the cluster, written from the inventory"
END = "# END muster"
DROP_IN = """\
# Written by Muster (role cluster_hosts): /etc/hosts holds the names of the cluster's nodes, and the machine's own name
# must not lead to 127.0.1.1. See templates/hosts.debian.tmpl for the case that user data ask for it all the same.
manage_etc_hosts: false
"""
MODULES_HEAD = """\
# The user data of this machine say manage_etc_hosts: localhost, which puts that line back without any template.
# So this is the list of cloud.cfg without update_etc_hosts.
cloud_init_modules:
"""
# The templates from which cloud-init writes the file name the machine by these.
TEMPLATE_NAMES = frozenset({"{{hostname}}", "{{fqdn}}"})
# Where Debian's and Ubuntu's installers, and cloud-init, have a machine's own name.
OWN_LOOPBACK = "127.0.1.1"
# A machine that calls itself so has no name of its own.
_LOCAL = frozenset(
    {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback", ""}
)
_BEGIN = re.compile(r"#\s*BEGIN muster\b")
_END = re.compile(r"#\s*END muster\b")
_TOKEN = re.compile(r"\{\{.*?\}\}|[^\s#]+")


@dataclass(frozen=True)
class HostsRequest:
    """The nodes of the inventory in its order, which of them this one is, and what the machine calls itself."""

    addresses: Mapping[str, str]
    own: str
    hostname: str = ""

    @property
    def own_address(self) -> str:
        return self.addresses[self.own]


@dataclass(frozen=True)
class HostsLine:
    """One line: `address` is empty where it names nothing. `text` holds every byte of it."""

    text: str
    address: str = ""
    names: tuple[str, ...] = ()

    @property
    def loopback(self) -> bool:
        address = _ip(self.address)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return address is not None and address.is_loopback


@dataclass(frozen=True)
class HostsRewrite:
    """The new text, why it differs, and what stands in the way and is not ours to change."""

    text: str
    reasons: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass
class _Parts:
    """The foreign lines in their order, those of the old block, and where the block stood among the foreign ones."""

    foreign: list[tuple[int, HostsLine]] = field(default_factory=list)
    block: list[HostsLine] = field(default_factory=list)
    place: int | None = None


def parse(text: str) -> list[HostsLine]:
    return [_line(each) for each in re.findall(r"[^\n]*\n|[^\n]+", text)]


def own_names(text: str, cluster: HostsRequest) -> list[str]:
    """Every name of this machine, the full one first: the first of a line is what `hostname -f` prints.

    A full name is only known from where an installer or an earlier run put it: the loopback lines and the own block.
    """
    hostname = cluster.hostname.lower()
    own = [] if hostname in _LOCAL else [hostname, hostname.partition(".")[0]]
    parts = _divide(parse(text), {*cluster.addresses, *own})
    ours = [line for line in parts.block if line.address == cluster.own_address]
    loopback = [line for _, line in parts.foreign if line.loopback]
    found = [name.lower() for line in [*loopback, *ours] for name in line.names if _calls_itself(cluster, name)]
    # A name that a foreign line already gives to an address of this machine is left to it, unless it is a node's.
    given = {name.lower() for _, line in parts.foreign if line.address and not line.loopback for name in line.names}
    others = {name.lower() for name in cluster.addresses if name != cluster.own}
    names = [name for name in [*found, *own] if name not in others and name not in given]
    if not _ip(cluster.own):
        names.append(cluster.own.lower())
    return sorted(dict.fromkeys(names), key=lambda name: "." not in name)


def block_of(cluster: HostsRequest, names: Iterable[str]) -> list[str]:
    """The lines of the managed block. A node whose name is an address needs none."""
    lines = []
    for name, address in cluster.addresses.items():
        called = " ".join(names) if name == cluster.own else "" if _ip(name) else name.lower()
        if called:
            lines.append(f"{address} {called}\n")
    return [f"{BEGIN}\n", *lines, f"{END}\n"]


def rewrite(text: str, cluster: HostsRequest, names: Iterable[str], *, template: bool = False) -> HostsRewrite:
    """The file as it should be. `names` are this machine's own, from own_names of the real hosts file."""
    names = list(names)
    ours = {*names, *(name.lower() for name in cluster.addresses if not _ip(name))}

    def is_ours(name: str) -> bool:
        return name.lower() in ours or _calls_itself(cluster, name) or (template and _plain(name) in TEMPLATE_NAMES)

    parts = _divide(parse(text), ours)
    reasons: list[str] = []
    kept: list[str] = []
    for number, line in parts.foreign:
        taken = [name for name in line.names if is_ours(name)] if line.loopback else []
        if taken:
            reasons.append(f"line {number} gives {' and '.join(taken)} the loopback address {line.address}")
        kept.append(_without(line, taken) if taken else line.text)
    place = len(kept) if parts.place is None else parts.place
    block = block_of(cluster, names)
    reasons.extend(_changes([line.text for line in parts.block], block))
    above, below = "".join(kept[:place]), "".join(kept[place:])
    if above and not above.endswith("\n"):
        above += "\n"
    after = "".join([above, *block, below])
    if after != text and not reasons:
        reasons.append("the block of the nodes is not as it was written")
    return HostsRewrite(after, tuple(reasons), tuple(_problems(parts, cluster)))


def forgotten(text: str, hostname: str, *, template: bool = False) -> str:
    """The file without the block, for a machine that leaves the cluster.

    Its own names go back to where an installer has them, so that it goes on to know itself.
    """
    cluster = HostsRequest({}, "", hostname)
    lines = parse(text)
    if not any(_BEGIN.match(line.text) for line in lines):
        return text

    def calls_itself(name: str) -> bool:
        return _plain(name) in TEMPLATE_NAMES if template else _calls_itself(cluster, name)

    parts = _divide(lines, set())
    own = [name for line in parts.block for name in line.names if calls_itself(name)]
    known = any(calls_itself(name) for _, line in parts.foreign for name in line.names)
    if template and not known:
        own = ["{{fqdn}}", "{{hostname}}"]
    kept = [line.text for _, line in parts.foreign]
    if own and not known:
        local = [place for place, (_, line) in enumerate(parts.foreign, 1) if line.address.startswith("127.")]
        kept.insert(max(local, default=0), f"{OWN_LOOPBACK}\t{' '.join(dict.fromkeys(own))}\n")
    return "".join(kept)


def misled(cluster: HostsRequest, names: Iterable[str], answers: Mapping[str, Iterable[str]]) -> list[str]:
    """What the node's resolver says that it must not say. `answers` holds the addresses of every name it was asked."""
    wanted = {name.lower(): address for name, address in cluster.addresses.items() if not _ip(name)}
    wanted.update(dict.fromkeys(names, cluster.own_address))
    sentences = []
    for name, address in wanted.items():
        found = sorted(set(answers.get(name, ())))
        if not found:
            sentences.append(f"{name} is not known there")
        elif {_ip(each) for each in found} != {_ip(address)}:
            sentences.append(f"{name} leads to {', '.join(found)} there, and its cluster_address is {address}")
    return sentences


def cloud_init_settings(instance: str, settings: Iterable[str]) -> str:
    """The drop-in that keeps cloud-init from /etc/hosts.

    `instance` is what the provider's and the user's data ask for. They outrank every setting on the machine, and where
    they say `manage_etc_hosts: localhost`, no template is used, either. Then the module that does it is taken off the
    list of modules, read from `settings`: cloud.cfg and its drop-ins but this one. The last that has it counts.
    """
    text = DROP_IN
    modules = next(filter(None, map(_modules, reversed(list(settings)))), [])
    if re.search(r"^manage_etc_hosts:\s*[\"']?localhost\b", instance, re.MULTILINE) and modules:
        kept = [line for line in modules if not re.search(r"\bupdate[_-]etc[_-]hosts\b", line)]
        text += "".join([MODULES_HEAD, *(f"  {line.strip()}\n" for line in kept)])
    return text


def _modules(text: str) -> list[str]:
    """The entries of cloud_init_modules, one to a line as every distribution writes them."""
    lines = iter(text.splitlines())
    if not any(re.match(r"cloud_init_modules:\s*(#.*)?$", line) for line in lines):
        return []
    entries = []
    for line in lines:
        if re.match(r"\s*-\s", line):
            entries.append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return entries


def _line(text: str) -> HostsLine:
    tokens = [match.group() for match in _TOKEN.finditer(text.partition("#")[0])]
    if text.lstrip().startswith(("{#", "{%")) or not tokens or _ip(tokens[0]) is None:
        return HostsLine(text)
    return HostsLine(text, tokens[0], tuple(tokens[1:]))


def _calls_itself(cluster: HostsRequest, name: str) -> bool:
    """Whether the machine's hostname is this name, or its first part with any domain."""
    hostname = cluster.hostname.lower()
    short = hostname.partition(".")[0]
    return hostname not in _LOCAL and (name.lower() in (hostname, short) or name.lower().startswith(f"{short}."))


def _plain(name: str) -> str:
    return re.sub(r"\s", "", name).lower()


def _divide(lines: list[HostsLine], ours: set[str]) -> _Parts:
    """Tell the foreign lines from those of our block, of which a hand may have removed one end, or made two."""
    parts = _Parts()
    ours = {name.lower() for name in ours}

    def may_be_ours(line: HostsLine) -> bool:
        return bool(line.names) and all(name.lower() in ours for name in line.names) and not line.loopback

    inside = False
    for number, line in enumerate(lines, 1):
        if _BEGIN.match(line.text):
            inside = True
        elif _END.match(line.text):
            # Without its beginning, what stands right above and names our names alone was the block.
            while not inside and parts.foreign and may_be_ours(parts.foreign[-1][1]):
                parts.block.append(parts.foreign.pop()[1])
            inside = False
        elif inside and (_closed(lines[number - 1 :]) or may_be_ours(line)):
            parts.block.append(line)
        else:
            inside = False
            parts.foreign.append((number, line))
            continue
        parts.place = len(parts.foreign) if parts.place is None else min(parts.place, len(parts.foreign))
    return parts


def _closed(rest: list[HostsLine]) -> bool:
    """Whether the block that is open here has an end of its own."""
    for line in rest:
        if _END.match(line.text):
            return True
        if _BEGIN.match(line.text):
            return False
    return False


def _without(line: HostsLine, taken: list[str]) -> str:
    """The line without these names; only its comment, when no name is left; nothing without that either."""
    content, mark, comment = line.text.partition("#")
    if len(taken) == len(line.names):
        return mark + comment
    matches = list(_TOKEN.finditer(content))
    pieces = [content[: matches[0].end()]]
    for before, match in pairwise(matches):
        if match.group() not in taken:
            # With the space before it, so that tabs stay where they were.
            pieces.append(content[before.end() : match.end()])
    return "".join([*pieces, content[matches[-1].end() :], mark, comment])


def _changes(before: list[str], after: list[str]) -> list[str]:
    lines = [line for line in after if not line.startswith("#")]
    missing = [line.strip() for line in lines if line not in before]
    extra = [line.strip() for line in before if line not in lines]
    sentences = [f"it lacks {', '.join(missing)}"] if missing else []
    if extra:
        sentences.append(f"its block still has {', '.join(extra)}")
    return sentences


def _problems(parts: _Parts, cluster: HostsRequest) -> Iterable[str]:
    wanted = {name.lower(): address for name, address in cluster.addresses.items() if not _ip(name)}
    for number, line in parts.foreign:
        if not line.address or line.loopback:
            continue
        for name in line.names:
            address = wanted.get(name.lower())
            if address and _ip(line.address) != _ip(address):
                yield (
                    f"line {number} gives {name} the address {line.address}, and its cluster_address is {address}. "
                    "Take the name off that line, or correct cluster_address in the inventory"
                )
    hostname = cluster.hostname.lower()
    if hostname != cluster.own.lower() and hostname in wanted:
        yield (
            f"the machine calls itself {cluster.hostname}, which is another node in the inventory. "
            f"Name it with: hostnamectl set-hostname {cluster.own}"
        )


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
