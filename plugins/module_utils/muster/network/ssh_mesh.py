"""The files that let the training user log in from every node on every other one.

Three files of the user are decided on here: authorized_keys and config, in each of which one block is ours, and
muster_known_hosts, which is ours as a whole. Each line of ours carries the name of its node, `muster:<cluster>:<node>`:
the lines of a node that took no part in a run are kept, and those of a node that left the inventory fall away.
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
# What a key that is not made yet is shown as in check mode.
KEY_TO_COME = "ssh-ed25519 (made when this is not a check)"
MAX_PEERS = 16
LABEL = re.compile(r"muster:([^\s:]+):(\S+)$")


class BlockError(ValueError):
    """A file of which nobody knows where our block ends."""


@dataclass(frozen=True)
class MeshMember:
    """A node as the others shall know it.

    sources: addresses from which it logs in. key: the training user's public key there. host_keys: those of its sshd.
    seen: whether it was looked at in this run. What the others know of a node that was not is kept as it is.
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
    """The texts of the three files, and the nodes whose keys are not in them."""

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
    """What the files must hold, given what they hold now. Raises BlockError with the file's name."""
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
    """The same three files without anything of ours; empty for one that held nothing else."""
    texts = (without_block("authorized_keys", authorized_keys), without_block("config", config))
    return MeshFiles(*texts, known_hosts="", strangers=())


def without_block(name: str, text: str) -> str:
    """Every other byte of the text. Raises BlockError where nobody knows where the block ends."""
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
    """Lines of ours for nodes that are in the inventory and were not looked at in this run."""
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
    # A key in the wrong hands opens nothing: it is good from its own node alone, and for no tunnels.
    sources = ",".join(dict.fromkeys(member.sources))
    return [f'from="{sources}",restrict,pty {member.key or KEY_TO_COME} muster:{cluster}:{member.name}']


def host_lines(cluster: str, member: MeshMember, kept_hosts: dict[str, list[str]]) -> list[str]:
    if not member.seen:
        return kept_hosts.get(member.name, [])
    names = ",".join(at_port(name, member.port) for name in dict.fromkeys((member.name, member.address)))
    return [f"{names} {key} muster:{cluster}:{member.name}" for key in sorted(member.host_keys)]


def at_port(name: str, port: int) -> str:
    """The name of a host as known_hosts files have it."""
    return name if port == 22 else f"[{name}]:{port}"


def config_lines(
    user: str, members: Sequence[MeshMember], identity: str, kept_hosts: dict[str, list[str]]
) -> list[str]:
    names = dict.fromkeys(name for member in members for name in (member.name, member.address))
    lines = [
        f"Host {' '.join(names)}",
        # Whoever the user is on the site's other machines: these keys are good for the same user on the peers.
        f"    User {user}",
        f"    IdentityFile {identity}",
        "    IdentitiesOnly yes",
        f"    UserKnownHostsFile ~/.ssh/{KNOWN_HOSTS}",
        "    StrictHostKeyChecking yes",
        "    UpdateHostKeys no",
    ]
    # A name leads to the training address here, whatever the site's own name service makes of it.
    for member in members:
        port = member.port if member.seen else port_of(kept_hosts.get(member.name, []))
        lines += [f"Host {member.name}", f"    HostName {member.address}"] if member.name != member.address else []
        lines += (
            [f"Host {' '.join(dict.fromkeys((member.name, member.address)))}", f"    Port {port}"] if port != 22 else []
        )
    # What follows the block holds for every host again, as it did before the block was there.
    return [*lines, "Match all"]


def port_of(lines: list[str]) -> int:
    found = re.match(r"\[[^\]]+\]:(\d+)", lines[0]) if lines else None
    return int(found[1]) if found else 22


def block_of(name: str, text: str) -> list[str]:
    """The lines of our block."""
    ours: list[str] = []
    inside = False
    for line in text.splitlines():
        if line == BEGIN:
            if inside:
                break
            inside = True
        elif line == END:
            if not inside:
                raise BlockError(f"{name} has the line '{END}' without the one that begins the block: remove that line")
            inside = False
        elif inside:
            ours.append(line)
    if inside:
        raise BlockError(
            f"{name} has the line '{BEGIN}', and '{END}' does not follow: remove what is left of the block"
        )
    return ours


def with_block(name: str, text: str, lines: list[str], *, first: bool = False) -> str:
    """The text with our block in it and every other byte as it was.

    The block stays where it is, or comes last; `first`: it comes first, because ssh takes the first value it finds.
    """
    block_of(name, text)  # refuses a block without an end
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
    """Nodes that hold the same private key, as copies of one disk do: {node: what is wrong}."""
    holders: dict[str, list[str]] = {}
    for member in members:
        if member.key:
            holders.setdefault(member.key, []).append(member.name)
    command = playbook("playbooks/network.yml", ssh_mesh_rotate="true")
    return {
        name: f"has the same private key as {', '.join(other for other in names if other != name)}, as copies of one"
        f" disk have: run {command}, and every node gets a key of its own"
        for names in holders.values()
        if len(names) > 1
        for name in names
    }


def same_host_keys(members: Iterable[MeshMember]) -> list[str]:
    """A sentence for each host key that several nodes have."""
    holders: dict[str, list[str]] = {}
    for member in members:
        for key in member.host_keys:
            holders.setdefault(key, []).append(member.name)
    groups = dict.fromkeys(tuple(names) for names in holders.values() if len(names) > 1)
    return [
        f"{', '.join(names)} have the same ssh host key, as copies of a disk have: each of them passes as the others."
        " On all but one: sudo sh -c 'rm /etc/ssh/ssh_host_* && ssh-keygen -A && systemctl restart ssh', then"
        f" {playbook('playbooks/trust.yml', trust_replace=','.join(names[1:]))}"
        for names in groups
    ]


def sample(names: Sequence[str], own: str) -> list[str]:
    """The peers that a node logs in on: all, or MAX_PEERS of them so that every node is somebody's.

    They begin behind the node itself, so that not every node begins with the same one: sshd drops connections
    when many come at once (MaxStartups).
    """
    if own not in names:
        return list(names[:MAX_PEERS])
    here = list(names).index(own)
    ring = [*names[here + 1 :], *names[:here]]
    if len(ring) <= MAX_PEERS:
        return ring
    return [ring[place * len(ring) // MAX_PEERS] for place in range(MAX_PEERS)]


def way(out: str, into: str) -> str:
    """What a login goes by at both of its ends, as one digest. out, into: those of the two ends."""
    return hashlib.sha256(f"{out} {into}".encode()).hexdigest()


def to_prove(peers: Sequence[str], known: Mapping[str, str], ways: Mapping[str, str]) -> list[str]:
    """Of the peers, in their order, those whose login has to be tried: its way is another one than when it worked last.

    The first one is tried in any case; peers begin behind the node itself, so that each is somebody's.
    """
    return [name for name in peers if name == peers[0] or not ways.get(name) or known.get(name) != ways[name]]


@dataclass(frozen=True)
class LoginAttempt:
    """One login that was tried: how ssh ended, what it said, and the name that the peer gave itself."""

    peer: MeshMember
    code: int
    said: str
    hostname: str


def refusals(user: str, attempts: Iterable[LoginAttempt]) -> list[str]:
    """A sentence for each peer that could not be logged in on: why, and what to type."""
    return [f"{attempt.peer.name}: {why}" for attempt in attempts for why in [_why(user, attempt)] if why]


def passing(attempt: LoginAttempt) -> bool:
    """Whether the peer hung up before it asked who comes, which it does under many connections at once."""
    return attempt.code != 0 and bool(re.search(r"kex_exchange_identification|Connection reset by peer", attempt.said))


_CAUSES = (
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one that the controller saw there. Compare them: ssh-keyscan {address}",
    ),
    (
        r"This account is currently not available",
        "{user} has no login shell there. Type there: sudo usermod --shell /bin/bash {user}",
    ),
    (
        r"Permission denied",
        "its sshd does not accept the key of {user}. It says why there: sudo journalctl -u ssh -n 30 --no-pager",
    ),
    (
        r"Connection refused",
        "nothing listens at {address} port {port}. Look there: sudo ss -ltnp | grep ssh; sudo sshd -T | grep listen",
    ),
    (
        r"timed out|No route to host|Network is unreachable",
        "nothing answers at {address} port {port}. Look there: sudo ufw status; and here: ip route get {address}",
    ),
)


def _why(user: str, attempt: LoginAttempt) -> str:
    peer = attempt.peer
    if attempt.code == 0:
        if peer.hostname and attempt.hostname != peer.hostname:
            return f"the machine that answered is called {attempt.hostname or 'nothing'}, not {peer.hostname}"
        return ""
    said = " ".join(attempt.said.split())[-300:] or f"ssh ended with {attempt.code} and said nothing"
    for pattern, sentence in _CAUSES:
        if re.search(pattern, attempt.said):
            return f"{sentence.format(user=user, address=peer.address, port=peer.port)} ({said})"
    return said


def differences(name: str, before: str, after: str) -> list[str]:
    """What is different in a file of ours, for people: which nodes' lines are missing, too many, or other ones."""
    if before == after:
        return []
    have, want = _by_node(before), _by_node(after)
    found = []
    missing = [node for node in want if node not in have]
    left = [node for node in have if node not in want]
    other = [node for node in want if node in have and have[node] != want[node]]
    if missing:
        found.append(f"{name} lacks {', '.join(missing)}")
    if left:
        found.append(f"{name} still has {', '.join(left)}")
    if other:
        found.append(f"{name} has other lines for {', '.join(other)}")
    return found or [f"{name} is not as the role writes it"]


def _by_node(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        label = LABEL.search(line)
        if label:
            found.setdefault(label[2], []).append(line)
    return found
