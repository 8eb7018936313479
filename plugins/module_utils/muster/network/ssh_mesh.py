"""Compute the files that allow the training user to log in from every node to every other node.

Muster manages one block in the user's authorized_keys and one in the user's config, and the complete file
muster_known_hosts. Each line has the label `muster:<cluster>:<node>`. Lines of nodes that are not part of a run are
kept. Lines of nodes that have left the inventory are removed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.commands import playbook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BEGIN = "# BEGIN muster: written by the role ssh_mesh, which overwrites changes in here"
END = "# END muster"
KNOWN_HOSTS = "muster_known_hosts"
KNOWN_HOSTS_HEAD = (
    "# Written by the role ssh_mesh: the host keys of the cluster's nodes. Changes in here are overwritten."
)
# Placeholder for keys in check mode.
KEY_TO_COME = "ssh-ed25519 (to be generated)"
MAX_PEERS = 16
LABEL = re.compile(r"muster:([^\s:]+):(\S+)$")


class BlockError(ValueError):
    """Raised if the end of the managed block in a file is unknown."""


@dataclass(frozen=True)
class MeshMember:
    """A node as seen by the other nodes.

    sources: the source addresses of its logins. key: the training user's public key. host_keys: the host keys of its
    sshd. seen: whether the node was checked in this run. The lines of other nodes are kept unchanged.
    """

    name: str
    address: str
    sources: tuple[str, ...] = ()
    port: int = 22
    key: str = ""
    host_keys: tuple[str, ...] = ()
    hostname: str = ""
    seen: bool = True


@dataclass(frozen=True)
class MeshFiles:
    """The content of the three files, and the nodes whose keys are missing (strangers)."""

    authorized_keys: str
    config: str
    known_hosts: str
    strangers: tuple[str, ...]


def member_of(given: dict[str, Any]) -> MeshMember:
    return MeshMember(**{**given, "sources": tuple(given["sources"]), "host_keys": tuple(given["host_keys"])})


def wanted(
    cluster: str,
    user: str,
    members: Sequence[MeshMember],
    identity: str,
    authorized_keys: str,
    config: str,
    known_hosts: str,
) -> MeshFiles:
    """Return the new content of the files, computed from their present content.

    Raises BlockError with the name of the file.
    """
    kept_logins = kept(block_of("authorized_keys", authorized_keys), members)
    kept_hosts = kept(known_hosts.splitlines(), members)
    logins = [line for member in members for line in login_lines(cluster, member, kept_logins)]
    hosts = [line for member in members for line in host_lines(cluster, member, kept_hosts)]
    return MeshFiles(
        authorized_keys=with_block("authorized_keys", authorized_keys, logins),
        config=with_block("config", config, config_lines(user, members, identity, kept_hosts), first=True),
        known_hosts="\n".join([KNOWN_HOSTS_HEAD, *hosts, ""]),
        strangers=tuple(
            member.name
            for member in members
            if not member.seen and not (member.name in kept_logins and member.name in kept_hosts)
        ),
    )


def forgotten(authorized_keys: str, config: str) -> MeshFiles:
    """Return the files without Muster's lines; "" for a file that has no other lines."""
    texts = (without_block("authorized_keys", authorized_keys), without_block("config", config))
    return MeshFiles(*texts, known_hosts="", strangers=())


def without_block(name: str, text: str) -> str:
    """Return the text without the managed block. Raises BlockError if the end of the block is unknown."""
    if not block_of(name, text) and BEGIN not in text.splitlines():
        return text
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        if bare == BEGIN:
            inside = True
        elif bare == END:
            inside = False
        elif not inside:
            kept.append(line)
    return "".join(kept)


def kept(lines: Iterable[str], members: Sequence[MeshMember]) -> dict[str, list[str]]:
    """Return Muster's lines for nodes that are in the inventory but were not checked in this run."""
    unseen = {member.name for member in members if not member.seen}
    found: dict[str, list[str]] = {}
    for line in lines:
        label = LABEL.search(line)
        if label and label[2] in unseen:
            found.setdefault(label[2], []).append(line)
    return found


def login_lines(cluster: str, member: MeshMember, kept_logins: dict[str, list[str]]) -> list[str]:
    if not member.seen:
        return kept_logins.get(member.name, [])
    # Limits the damage of a stolen key: it is valid only from its node, without forwarding.
    sources = ",".join(dict.fromkeys(member.sources))
    return [f'from="{sources}",restrict,pty {member.key or KEY_TO_COME} muster:{cluster}:{member.name}']


def host_lines(cluster: str, member: MeshMember, kept_hosts: dict[str, list[str]]) -> list[str]:
    if not member.seen:
        return kept_hosts.get(member.name, [])
    names = ",".join(at_port(name, member.port) for name in dict.fromkeys((member.name, member.address)))
    return [f"{names} {key} muster:{cluster}:{member.name}" for key in sorted(member.host_keys)]


def at_port(name: str, port: int) -> str:
    """Return the host name in the notation of known_hosts."""
    return name if port == 22 else f"[{name}]:{port}"


def config_lines(
    user: str, members: Sequence[MeshMember], identity: str, kept_hosts: dict[str, list[str]]
) -> list[str]:
    names = dict.fromkeys(name for member in members for name in (member.name, member.address))
    lines = [
        f"Host {' '.join(names)}",
        # The keys are valid for the same user on the peers, whatever the user's config sets for other hosts.
        f"    User {user}",
        f"    IdentityFile {identity}",
        "    IdentitiesOnly yes",
        f"    UserKnownHostsFile ~/.ssh/{KNOWN_HOSTS}",
        "    StrictHostKeyChecking yes",
        "    UpdateHostKeys no",
    ]
    # Use the training address for a name, regardless of the site's name service.
    for member in members:
        port = member.port if member.seen else port_of(kept_hosts.get(member.name, []))
        lines += [f"Host {member.name}", f"    HostName {member.address}"] if member.name != member.address else []
        lines += (
            [f"Host {' '.join(dict.fromkeys((member.name, member.address)))}", f"    Port {port}"] if port != 22 else []
        )
    # Lines after the block apply to all hosts again, as before.
    return [*lines, "Match all"]


def port_of(lines: list[str]) -> int:
    found = re.match(r"\[[^\]]+\]:(\d+)", lines[0]) if lines else None
    return int(found[1]) if found else 22


def block_of(name: str, text: str) -> list[str]:
    """Return the lines of the managed block. Raises BlockError."""
    ours: list[str] = []
    inside = False
    for line in text.splitlines():
        if line == BEGIN:
            if inside:
                break
            inside = True
        elif line == END:
            if not inside:
                raise BlockError(f"{name} has the line '{END}' without the first line of the block: remove this line")
            inside = False
        elif inside:
            ours.append(line)
    if inside:
        raise BlockError(f"{name} has the line '{BEGIN}' without '{END}' after it: remove the rest of the block")
    return ours


def with_block(name: str, text: str, lines: list[str], *, first: bool = False) -> str:
    """Return the text with the managed block. Everything else is unchanged.

    An existing block stays in place; a new block is appended. first: put the block first, because ssh uses the first
    value of a setting.
    """
    block_of(name, text)  # raises BlockError for a block without an end
    block = "\n".join([BEGIN, *lines, END, ""])
    before: list[str] = []
    after: list[str] = []
    met = inside = False
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        if bare == BEGIN:
            met = inside = True
        elif bare == END:
            inside = False
        elif not inside:
            (after if met else before).append(line)
    if first:
        return block + "".join(before + after)
    if before and not before[-1].endswith(("\n", "\r")):
        before[-1] += "\n"
    return "".join(before) + block + "".join(after)


def clashes(members: Iterable[MeshMember]) -> dict[str, str]:
    """Return {node: sentence} for nodes that share a private key, as happens with cloned disks."""
    holders: dict[str, list[str]] = {}
    for member in members:
        if member.key:
            holders.setdefault(member.key, []).append(member.name)
    command = playbook("playbooks/network.yml", ssh_mesh_rotate="true")
    return {
        name: f"has the same private key as {', '.join(other for other in names if other != name)} (typical of cloned"
        f" disks): run {command} to create a new key on every node"
        for names in holders.values()
        if len(names) > 1
        for name in names
    }


def same_host_keys(members: Iterable[MeshMember]) -> list[str]:
    """Return a sentence about each host key that several nodes share."""
    holders: dict[str, list[str]] = {}
    for member in members:
        for key in member.host_keys:
            holders.setdefault(key, []).append(member.name)
    groups = dict.fromkeys(tuple(names) for names in holders.values() if len(names) > 1)
    return [
        f"{', '.join(names)} have the same SSH host key (typical of cloned disks), so each can impersonate the others."
        " Run on all but one: sudo sh -c 'rm /etc/ssh/ssh_host_* && ssh-keygen -A && systemctl restart ssh', then"
        f" {playbook('playbooks/trust.yml', trust_replace=','.join(names[1:]))}"
        for names in groups
    ]


def sample(names: Sequence[str], own: str) -> list[str]:
    """Return the nodes to which a node tests its login: all of them, or MAX_PEERS chosen so that every node is tested
    by another one.

    The list starts after the node itself, so that the nodes begin with different targets. sshd drops connections if too
    many start at the same time (MaxStartups).
    """
    if own not in names:
        return list(names[:MAX_PEERS])
    here = list(names).index(own)
    ring = [*names[here + 1 :], *names[:here]]
    if len(ring) <= MAX_PEERS:
        return ring
    return [ring[place * len(ring) // MAX_PEERS] for place in range(MAX_PEERS)]


def way(out: str, into: str) -> str:
    """Return one digest for a login, computed from the digests of both ends."""
    return hashlib.sha256(f"{out} {into}".encode()).hexdigest()


def to_prove(peers: Sequence[str], known: Mapping[str, str], ways: Mapping[str, str]) -> list[str]:
    """Return the nodes, in order, to which the login must be tested, because its digest differs from that of the last
    successful login.

    The first node in the list is always tested. Lists start after the node itself, so every node is tested by another
    one.
    """
    return [name for name in peers if name == peers[0] or not ways.get(name) or known.get(name) != ways[name]]


@dataclass(frozen=True)
class LoginAttempt:
    """A tested login: exit code and output of ssh, and the hostname that the other node reported."""

    peer: MeshMember
    code: int
    said: str
    hostname: str


def refusals(user: str, attempts: Iterable[LoginAttempt]) -> list[str]:
    """Return a sentence for each failed login, with the reason and a command."""
    return [f"{attempt.peer.name}: {why}" for attempt in attempts for why in [_why(user, attempt)] if why]


def passing(attempt: LoginAttempt) -> bool:
    """Return whether the other node closed the connection before authentication, as it does under many parallel
    connections.
    """
    return attempt.code != 0 and bool(re.search(r"kex_exchange_identification|Connection reset by peer", attempt.said))


_CAUSES = (
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key differs from the key that the controller recorded. Compare both: ssh-keyscan {address}",
    ),
    (
        r"This account is currently not available",
        "{user} has no login shell. Run on the peer: sudo usermod --shell /bin/bash {user}",
    ),
    (
        r"Permission denied",
        "sshd does not accept the key of {user}. Show the reason on the peer: sudo journalctl -u ssh -n 30 --no-pager",
    ),
    (
        r"Connection refused",
        "no server listens on {address} port {port}. On the peer: sudo ss -ltnp | grep ssh; sudo sshd -T | grep listen",
    ),
    (
        r"timed out|No route to host|Network is unreachable",
        "no reply from {address} port {port}. Check on the peer: sudo ufw status; on this node: ip route get {address}",
    ),
)


def _why(user: str, attempt: LoginAttempt) -> str:
    peer = attempt.peer
    if attempt.code == 0:
        if peer.hostname and attempt.hostname != peer.hostname:
            return f"the machine that responded has the hostname {attempt.hostname or '(none)'}, not {peer.hostname}"
        return ""
    said = " ".join(attempt.said.split())[-300:] or f"ssh exited with code {attempt.code} without output"
    for pattern, sentence in _CAUSES:
        if re.search(pattern, attempt.said):
            return f"{sentence.format(user=user, address=peer.address, port=peer.port)} ({said})"
    return said


def differences(name: str, before: str, after: str) -> list[str]:
    """Return sentences about the differences in a file: nodes whose lines are missing, outdated or different."""
    if before == after:
        return []
    have, want = _by_node(before), _by_node(after)
    found = []
    missing = [node for node in want if node not in have]
    left = [node for node in have if node not in want]
    other = [node for node in want if node in have and have[node] != want[node]]
    if missing:
        found.append(f"{name} has no lines for {', '.join(missing)}")
    if left:
        found.append(f"{name} has outdated lines for {', '.join(left)}")
    if other:
        found.append(f"{name} has different lines for {', '.join(other)}")
    return found or [f"{name} differs from what the role writes"]


def _by_node(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        label = LABEL.search(line)
        if label:
            found.setdefault(label[2], []).append(line)
    return found
