"""known_hosts files: reading what they say of a host, and changing lines of ours without touching any other.

The names of a host are those that ssh looks up: `name`, or `[name]:port` for a port other than 22. Names may be hashed
(HashKnownHosts), listed with commas, and hold wildcards.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

HEAD = "# Host keys of the nodes, pinned by playbooks/trust.yml. Lines of your own may stand here too.\n"
# How a line of ours ends: it names the node whose key it holds.
LABEL = re.compile(r"\smuster:(\S+)\s*$")


@dataclass(frozen=True)
class HostKey:
    """A public key as its type and its base64."""

    type: str
    text: str

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(base64.b64decode(self.text)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


@dataclass(frozen=True)
class KnownHostsEntry:
    """A line of a known_hosts file. marker: @revoked, @cert-authority or nothing."""

    hosts: str
    key: HostKey
    marker: str = ""
    file: str = ""
    line: str = ""

    def names(self, host: str) -> bool:
        """Whether the line speaks of this host."""
        if self.hosts.startswith("|1|"):
            return _is_hash_of(self.hosts, host)
        found = False
        for pattern in self.hosts.lower().split(","):
            if fnmatchcase(host.lower(), _literal_brackets(pattern.removeprefix("!"))):
                if pattern.startswith("!"):
                    return False
                found = True
        return found


def _literal_brackets(pattern: str) -> str:
    """For fnmatch, [ begins a set; here it is part of [name]:port."""
    return pattern.replace("[", "[[]")


def _is_hash_of(hosts: str, host: str) -> bool:
    try:
        _, _, salt, digest = hosts.split("|")
        wanted = hmac.new(base64.b64decode(salt), host.lower().encode(), hashlib.sha1).digest()
        return hmac.compare_digest(wanted, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False


def host_name(hostname: str, port: int, alias: str = "") -> str:
    """The name under which ssh looks a host up."""
    if alias:
        return alias.lower()
    return hostname.lower() if port == 22 else f"[{hostname.lower()}]:{port}"


def key_of(text: str) -> HostKey | None:
    """The key in a public key line (type, base64, and perhaps a comment)."""
    words = text.split()
    if len(words) < 2:
        return None
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (ValueError, binascii.Error):
        return None
    # The blob says its type itself, behind four bytes of length.
    return HostKey(words[0], words[1]) if blob[4 : 4 + len(words[0])] == words[0].encode() else None


def entry_of(line: str, file: str = "") -> KnownHostsEntry | None:
    """What a line says; nothing for comments and lines that cannot be read."""
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return None
    key = key_of(f"{words[1]} {words[2]}")
    return KnownHostsEntry(words[0], key, marker, file, line) if key else None


def entries(text: str, file: str = "") -> list[KnownHostsEntry]:
    return [entry for line in text.splitlines() for entry in [entry_of(line, file)] if entry]


def pinned(text: str, node: str, host: str, key: HostKey, *, replace: bool = False) -> str:
    """The text with the key pinned. Our lines of older addresses of the node go; `replace`: so do its other keys."""
    kept = "".join(_kept(line, node, host, key, replace) for line in text.splitlines(keepends=True) or [HEAD])
    end = "" if not kept or kept.endswith("\n") else "\n"
    return f"{kept}{end}{host} {key.type} {key.text} muster:{node}\n"


def _kept(line: str, node: str, host: str, key: HostKey, replace: bool) -> str:
    entry = entry_of(line)
    if entry is None or entry.marker:
        return line
    if not entry.names(host):
        return "" if owner(line) == node else line
    return _without(line, entry, host) if replace or entry.key == key else line


def _without(line: str, entry: KnownHostsEntry, host: str) -> str:
    """The line without this host: nothing, when it named no other. A wildcard is not ours to take away."""
    if entry.hosts.startswith("|1|"):
        return ""
    names = entry.hosts.split(",")
    others = [name for name in names if name.lower() != host]
    if others == names:
        return line
    return line.replace(entry.hosts, ",".join(others), 1) if others else ""


def owner(line: str) -> str:
    """The node that a line of ours belongs to."""
    label = LABEL.search(line)
    return label[1] if label else ""


def forgotten(text: str, nodes: Collection[str]) -> str:
    """The text without our lines for these nodes."""
    return "".join(line for line in text.splitlines(keepends=True) if not (entry_of(line) and owner(line) in nodes))


def left_behind(text: str, nodes: Collection[str]) -> dict[str, list[str]]:
    """Lines of ours for nodes that are not in the inventory any more: {node: names of the host}."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        entry = entry_of(line)
        if entry and owner(line) and owner(line) not in nodes:
            found.setdefault(owner(line), []).append(entry.hosts)
    return found


def paths_of(value: str, existing: Collection[str]) -> list[str]:
    """The files in a list of paths as `ssh -G` prints it: without quotes, though paths may hold spaces.

    existing: paths that are known to be meant or to exist.
    """
    words = value.split(" ")
    paths = []
    while words:
        for count in range(len(words), 0, -1):
            path = " ".join(words[:count])
            if path in existing or count == 1:
                paths.append(path)
                del words[:count]
                break
    return [path for path in paths if path and path != "none"]


def candidates(value: str) -> list[str]:
    """Every run of words of such a list: what may be one path."""
    words = value.split(" ")
    return [" ".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, len(words) + 1)]
