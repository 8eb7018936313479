"""Compute the content of /etc/hosts for the cluster.

A managed block contains the name and cluster address of every node. The line of the node itself also contains its
hostname. The names in the block are removed from the lines of loopback addresses. Everything else is kept byte for
byte.
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
# Written by Muster (role cluster_hosts): /etc/hosts contains the names of the cluster's nodes, and the name of
# this machine must not resolve to 127.0.1.1. templates/hosts.debian.tmpl applies if user data set manage_etc_hosts.
manage_etc_hosts: false
"""
MODULES_HEAD = """\
# The user data of this machine set manage_etc_hosts: localhost, which adds the 127.0.1.1 line without a template.
# Therefore this is the list in cloud.cfg without update_etc_hosts.
cloud_init_modules:
"""
# Names of the machine in cloud-init's templates of the file.
TEMPLATE_NAMES = frozenset({"{{hostname}}", "{{fqdn}}"})
# The address that Debian's and Ubuntu's installers, and cloud-init, assign to the hostname.
OWN_LOOPBACK = "127.0.1.1"
# Hostnames that do not identify a machine.
_LOCAL = frozenset(
    {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback", ""}
)
_BEGIN = re.compile(r"#\s*BEGIN muster\b")
_END = re.compile(r"#\s*END muster\b")
_TOKEN = re.compile(r"\{\{.*?\}\}|[^\s#]+")


@dataclass(frozen=True)
class HostsRequest:
    """The requested entries: addresses of the nodes in inventory order, the name of this node
    (own), and its hostname.
    """

    addresses: Mapping[str, str]
    own: str
    hostname: str = ""

    @property
    def own_address(self) -> str:
        return self.addresses[self.own]


@dataclass(frozen=True)
class HostsLine:
    """One line. address: "" if the line has no entry. text: the complete line."""

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
    """The new text, the reasons for the changes, and problems that an administrator must fix."""

    text: str
    reasons: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass
class _Parts:
    """The lines outside the managed block in order, the lines of the existing block, and the position of the block."""

    foreign: list[tuple[int, HostsLine]] = field(default_factory=list)
    block: list[HostsLine] = field(default_factory=list)
    place: int | None = None


def parse(text: str) -> list[HostsLine]:
    return [_line(each) for each in re.findall(r"[^\n]*\n|[^\n]+", text)]


def own_names(text: str, cluster: HostsRequest) -> list[str]:
    """Return all names of this machine. The FQDN comes first, because `hostname -f` prints the first name of a line.

    The FQDN is known only from loopback lines, which the installer wrote, and from the managed block of an earlier run.
    """
    hostname = cluster.hostname.lower()
    own = [] if hostname in _LOCAL else [hostname, hostname.partition(".")[0]]
    parts = _divide(parse(text), {*cluster.addresses, *own})
    ours = [line for line in parts.block if line.address == cluster.own_address]
    loopback = [line for _, line in parts.foreign if line.loopback]
    found = [name.lower() for line in [*loopback, *ours] for name in line.names if _calls_itself(cluster, name)]
    # Names in foreign lines stay there, unless they are node names.
    given = {name.lower() for _, line in parts.foreign if line.address and not line.loopback for name in line.names}
    others = {name.lower() for name in cluster.addresses if name != cluster.own}
    names = [name for name in [*found, *own] if name not in others and name not in given]
    if not _ip(cluster.own):
        names.append(cluster.own.lower())
    return sorted(dict.fromkeys(names), key=lambda name: "." not in name)


def block_of(cluster: HostsRequest, names: Iterable[str]) -> list[str]:
    """Return the lines of the managed block. Nodes whose name is an IP address get no line."""
    lines = []
    for name, address in cluster.addresses.items():
        called = " ".join(names) if name == cluster.own else "" if _ip(name) else name.lower()
        if called:
            lines.append(f"{address} {called}\n")
    return [f"{BEGIN}\n", *lines, f"{END}\n"]


def rewrite(text: str, cluster: HostsRequest, names: Iterable[str], *, template: bool = False) -> HostsRewrite:
    """Return the new content. names: the machine's names, as own_names() returned them for the existing hosts file."""
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
            reasons.append(f"line {number} maps {' and '.join(taken)} to the loopback address {line.address}")
        kept.append(_without(line, taken) if taken else line.text)
    place = len(kept) if parts.place is None else parts.place
    block = block_of(cluster, names)
    reasons.extend(_changes([line.text for line in parts.block], block))
    above, below = "".join(kept[:place]), "".join(kept[place:])
    if above and not above.endswith("\n"):
        above += "\n"
    after = "".join([above, *block, below])
    if after != text and not reasons:
        reasons.append("the managed block was modified")
    return HostsRewrite(after, tuple(reasons), tuple(_problems(parts, cluster)))


def forgotten(text: str, hostname: str, *, template: bool = False) -> str:
    """Return the content without the managed block, for a machine that leaves the cluster.

    The machine's own names are put back on the line where the installer writes them, so that its hostname still
    resolves.
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
    """Return sentences about names that the node resolves to wrong addresses.

    answers: the resolved addresses of each name.
    """
    wanted = {name.lower(): address for name, address in cluster.addresses.items() if not _ip(name)}
    wanted.update(dict.fromkeys(names, cluster.own_address))
    sentences = []
    for name, address in wanted.items():
        found = sorted(set(answers.get(name, ())))
        if not found:
            sentences.append(f"{name} does not resolve")
        elif {_ip(each) for each in found} != {_ip(address)}:
            sentences.append(f"{name} resolves to {', '.join(found)}, but its cluster_address is {address}")
    return sentences


def cloud_init_settings(instance: str, settings: Iterable[str]) -> str:
    """Return the cloud-init drop-in that prevents changes to /etc/hosts.

    instance: vendor and user data, which override all settings on the machine. If they contain `manage_etc_hosts:
    localhost`, cloud-init does not use a template either. In this case, the module that writes /etc/hosts is removed
    from the list of modules. settings: cloud.cfg and its drop-ins except this one; the last list of modules counts.
    """
    text = DROP_IN
    modules = next(filter(None, map(_modules, reversed(list(settings)))), [])
    if re.search(r"^manage_etc_hosts:\s*[\"']?localhost\b", instance, re.MULTILINE) and modules:
        kept = [line for line in modules if not re.search(r"\bupdate[_-]etc[_-]hosts\b", line)]
        text += "".join([MODULES_HEAD, *(f"  {line.strip()}\n" for line in kept)])
    return text


def _modules(text: str) -> list[str]:
    """Return the entries of cloud_init_modules, which all distributions write one per line."""
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
    """Return whether the name is the machine's hostname, or the hostname's first label with any domain."""
    hostname = cluster.hostname.lower()
    short = hostname.partition(".")[0]
    return hostname not in _LOCAL and (name.lower() in (hostname, short) or name.lower().startswith(f"{short}."))


def _plain(name: str) -> str:
    return re.sub(r"\s", "", name).lower()


def _divide(lines: list[HostsLine], ours: set[str]) -> _Parts:
    """Separate the lines outside the managed block from the block, even if a block marker is missing or duplicated."""
    parts = _Parts()
    ours = {name.lower() for name in ours}

    def may_be_ours(line: HostsLine) -> bool:
        return bool(line.names) and all(name.lower() in ours for name in line.names) and not line.loopback

    inside = False
    for number, line in enumerate(lines, 1):
        if _BEGIN.match(line.text):
            inside = True
        elif _END.match(line.text):
            # Without a BEGIN line, the lines directly above that have only our names were the block.
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
    """Return whether the open block has an END line."""
    for line in rest:
        if _END.match(line.text):
            return True
        if _BEGIN.match(line.text):
            return False
    return False


def _without(line: HostsLine, taken: list[str]) -> str:
    """Return the line without these names. If no name remains, return only its comment, or ""."""
    content, mark, comment = line.text.partition("#")
    if len(taken) == len(line.names):
        return mark + comment
    matches = list(_TOKEN.finditer(content))
    pieces = [content[: matches[0].end()]]
    for before, match in pairwise(matches):
        if match.group() not in taken:
            # Keep the whitespace before the name.
            pieces.append(content[before.end() : match.end()])
    return "".join([*pieces, content[matches[-1].end() :], mark, comment])


def _changes(before: list[str], after: list[str]) -> list[str]:
    lines = [line for line in after if not line.startswith("#")]
    missing = [line.strip() for line in lines if line not in before]
    extra = [line.strip() for line in before if line not in lines]
    sentences = [f"missing lines: {', '.join(missing)}"] if missing else []
    if extra:
        sentences.append(f"outdated lines in the block: {', '.join(extra)}")
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
                    f"line {number} maps {name} to {line.address}, but its cluster_address is {address}. "
                    "Remove the name from that line, or correct cluster_address in the inventory"
                )
    hostname = cluster.hostname.lower()
    if hostname != cluster.own.lower() and hostname in wanted:
        yield (
            f"the hostname is {cluster.hostname}, which is another node in the inventory. "
            f"Correct it with: hostnamectl set-hostname {cluster.own}"
        )


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
