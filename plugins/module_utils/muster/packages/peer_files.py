"""Files that a node fetches from another node over SSH: the request, the command, and the causes of failures."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

# A login shell may print any text before the command begins; the archive follows this line.
BEGIN = b"muster-peer-files\n"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+~!=:%-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LABEL = re.compile(r"muster:[^\s:]+:(\S+)$", re.MULTILINE)


class PeerFilesError(ValueError):
    """The request is invalid. The message is one sentence."""


@dataclass(frozen=True)
class WantedFile:
    """A file to fetch: its name without a folder, and its content digest."""

    name: str
    sha256: str


@dataclass(frozen=True)
class FetchAttempt:
    """The result of fetching from one node. why: why it failed; "" if all requested files arrived."""

    peer: str
    fetched: tuple[str, ...] = ()
    bytes: int = 0
    why: str = ""


def wanted_of(given: Sequence[Mapping[str, Any]]) -> tuple[WantedFile, ...]:
    files: dict[str, str] = {}
    for entry in given:
        name, sha256 = str(entry.get("name", "")), str(entry.get("sha256", ""))
        if not _NAME.fullmatch(name):
            raise PeerFilesError(f"'{name}' is not a file name without a folder")
        if not _SHA256.fullmatch(sha256):
            raise PeerFilesError(f"{name}: '{sha256}' is not a hexadecimal sha256")
        if files.setdefault(name, sha256) != sha256:
            raise PeerFilesError(f"{name} is listed twice with different hashes")
    return tuple(WantedFile(name, sha256) for name, sha256 in files.items())


def known_peers(known_hosts: str) -> frozenset[str]:
    """Return the nodes whose host keys the role ssh_mesh has recorded for this user."""
    return frozenset(_LABEL.findall(known_hosts))


def remote_command(folder: str, names: Collection[str]) -> str:
    """Return the command to run on the other node. It prints a start marker and then an archive of the files."""
    tar = ["tar", "--create", "--file=-", "--no-recursion", f"--directory={folder}", "--", *names]
    return f"printf '%s\\n' '' {BEGIN.decode().strip()} && exec {shlex.join(tar)}"


def hung_up(said: str) -> bool:
    """Return whether the other node closed the connection before authentication, as sshd does under many parallel
    connections.
    """
    return bool(re.search(r"kex_exchange_identification|Connection (reset|closed) by", said))


_CAUSES = (
    (r"Host key verification failed|IDENTIFICATION HAS CHANGED", "the host key differs from the recorded host key"),
    (r"account is currently not available", "the user has no login shell on that node"),
    (r"Permission denied \(", "sshd does not accept the user's key"),
    (r"Connection refused", "no program listens on the SSH port"),
    (r"timed out|No route to host|Network is unreachable", "the peer did not respond"),
    (r"Could not resolve hostname", "the host name cannot be resolved"),
)


def why_not(code: int, said: str, came: Collection[str], asked: Collection[str]) -> str:
    """Return in a few words why files are missing; "" if no file is missing."""
    missing = [name for name in asked if name not in came]
    if not missing:
        return ""
    for pattern, cause in _CAUSES:
        if re.search(pattern, said):
            return cause
    if code in (0, 2) and re.search(r"^(\S*tar: .*|)$", said.strip().partition("\n")[0]):
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"not found on the peer: {missing[0]}{others}"
    return " ".join(said.split())[-300:] or f"ssh exited with status {code} and no output"
