"""Read known_hosts files, and change the lines that Muster added without changing other lines.

Host names have the form that ssh uses: `name`, or `[name]:port` for ports other than 22. Names can be hashed
(HashKnownHosts), separated by commas, or contain wildcards.
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

HEAD = "# Host keys of the nodes, pinned by playbooks/trust.yml. You can add other lines.\n"
# The end of Muster's lines, with the node of the key.
LABEL = re.compile(r"\smuster:(\S+)\s*$")


@dataclass(frozen=True)
class HostKey:
    """A public key: its type and its base64 text."""

    type: str
    text: str

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(base64.b64decode(self.text)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


@dataclass(frozen=True)
class KnownHostsEntry:
    """A line of a known_hosts file. marker: @revoked, @cert-authority or ""."""

    hosts: str
    key: HostKey
    marker: str = ""
    file: str = ""
    line: str = ""

    def names(self, host: str) -> bool:
        """Return whether the line applies to this host."""
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
    """Escape [ for fnmatch, because [ is part of the notation [name]:port."""
    return pattern.replace("[", "[[]")


def _is_hash_of(hosts: str, host: str) -> bool:
    try:
        _, _, salt, digest = hosts.split("|")
        wanted = hmac.new(base64.b64decode(salt), host.lower().encode(), hashlib.sha1).digest()
        return hmac.compare_digest(wanted, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False


def host_name(hostname: str, port: int, alias: str = "") -> str:
    """Return the name under which ssh looks up a host."""
    if alias:
        return alias.lower()
    return hostname.lower() if port == 22 else f"[{hostname.lower()}]:{port}"


def key_of(text: str) -> HostKey | None:
    """Return the key in a public key line, which consists of type, base64 text and an optional comment."""
    words = text.split()
    if len(words) < 2:
        return None
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (ValueError, binascii.Error):
        return None
    # The blob contains its type after four bytes of length.
    return HostKey(words[0], words[1]) if blob[4 : 4 + len(words[0])] == words[0].encode() else None


def entry_of(line: str, file: str = "") -> KnownHostsEntry | None:
    """Parse a line. Return None for a comment or an invalid line."""
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return None
    key = key_of(f"{words[1]} {words[2]}")
    return KnownHostsEntry(words[0], key, marker, file, line) if key else None


def entries(text: str, file: str = "") -> list[KnownHostsEntry]:
    return [entry for line in text.splitlines() for entry in [entry_of(line, file)] if entry]


def pinned(text: str, node: str, host: str, key: HostKey, *, replace: bool = False) -> str:
    """Return the text with the key pinned and the node's older addresses removed.

    replace: whether other keys are also removed.
    """
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
    """Return the line without this host; "" if the line names no other host. Wildcards are kept."""
    if entry.hosts.startswith("|1|"):
        return ""
    names = entry.hosts.split(",")
    others = [name for name in names if name.lower() != host]
    if others == names:
        return line
    return line.replace(entry.hosts, ",".join(others), 1) if others else ""


def owner(line: str) -> str:
    """Return the node to which a line that Muster added belongs; "" for other lines."""
    label = LABEL.search(line)
    return label[1] if label else ""


def forgotten(text: str, nodes: Collection[str]) -> str:
    """Return the text without the lines that Muster added for these nodes."""
    return "".join(line for line in text.splitlines(keepends=True) if not (entry_of(line) and owner(line) in nodes))


def left_behind(text: str, nodes: Collection[str]) -> dict[str, list[str]]:
    """Return {node: host names} from lines that Muster added for nodes that have left the inventory."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        entry = entry_of(line)
        if entry and owner(line) and owner(line) not in nodes:
            found.setdefault(owner(line), []).append(entry.hosts)
    return found


def paths_of(value: str, existing: Collection[str]) -> list[str]:
    """Split a list of paths as printed by `ssh -G`, which adds no quotes although paths can contain spaces.

    existing: paths that are expected or that exist.
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
    """Return every sequence of words in such a list, because each sequence could be a path."""
    words = value.split(" ")
    return [" ".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, len(words) + 1)]
