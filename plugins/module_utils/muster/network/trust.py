"""First contact with a node: evaluate its host key, and decide whether to pin the key."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..verdict.commands import playbook
from ..verdict.words import few, plural
from .known_hosts import HostKey, KnownHostsEntry, key_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# In ssh's order of preference.
KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)
WIRING = (
    "Copy group_vars/gpu_nodes.yml from inventory/lab to your inventory, or set ansible_ssh_extra_args to:"
    " -o 'UserKnownHostsFile=\"{{ inventory_dir }}/known_hosts\" ~/.ssh/known_hosts'"
)


@dataclass(frozen=True)
class Contact:
    """The result of the first contact with a node.

    host: the name under which ssh looks up the node. address: the address to display. keys: its host keys. error: why
    it sent no key. wanted: cluster_host_key of the inventory. reads: whether ssh reads the project's known_hosts for
    this node. local: whether the node is the controller itself, so that ssh is not used.
    """

    node: str
    host: str
    address: str
    keys: tuple[HostKey, ...] = ()
    error: str = ""
    wanted: str = ""
    reads: bool = True
    local: bool = False


@dataclass(frozen=True)
class HostKeyDecision:
    """The decision about a node.

    action: "" (nothing), pin, ask (then pin) or refuse. replace: whether other keys of the node are removed.
    """

    node: str
    address: str
    state: str
    action: str = ""
    key: HostKey | None = None
    host: str = ""
    replace: bool = False
    why: str = ""


def types_to_ask(
    keys: Sequence[HostKey], known: Sequence[KnownHostsEntry], wanted: str, asked: Sequence[Sequence[str]]
) -> list[str]:
    """Return the key types to request in the next connection, best first; [] if no more keys are needed.

    One key is enough to identify a node. Further types are requested if a key of another type is known or in the
    inventory, because only keys of the same type can be compared.
    """
    if not asked:
        return list(KEY_TYPES)
    missing: list[str] = []
    if wanted and not any(_is(key, wanted) for key in keys):
        given = key_of(wanted)
        missing += [given.type] if given else KEY_TYPES
    trusted = [entry.key for entry in known if not entry.marker]
    if not set(trusted) & set(keys):
        missing += [key.type for key in trusted]
    have = {key.type for key in keys}
    return next(([name] for name in missing if name not in have and [name] not in asked), [])


def decide(
    contact: Contact, known: Sequence[KnownHostsEntry], project: str, replace: Collection[str]
) -> HostKeyDecision:
    """Return the decision about a node. known: the lines about this node in all files that ssh reads."""
    if contact.local:
        return HostKeyDecision(contact.node, contact.address, "the controller itself (no SSH)")
    if not contact.keys:
        return HostKeyDecision(contact.node, contact.address, "no answer", why=contact.error)
    key = contact.keys[0]
    if contact.wanted:
        matching = [offered for offered in contact.keys if _is(offered, contact.wanted)]
        if not matching:
            return _refused(contact, key, "does NOT match the inventory", _not_the_inventorys(contact, key))
        key = matching[0]
    revoked = [entry for entry in known if entry.marker == "@revoked" and entry.key in contact.keys]
    if revoked:
        why = f"{revoked[0].file} revokes this key (@revoked). Do not trust a machine that uses it"
        return _refused(contact, key, "REVOKED", why)
    return _against_known(contact, key, [entry for entry in known if not entry.marker], project, replace)


def _against_known(
    contact: Contact, key: HostKey, known: list[KnownHostsEntry], project: str, replace: Collection[str]
) -> HostKeyDecision:
    same = [entry for entry in known if entry.key == key]
    if same:
        # The key was trusted before. In the project's file, it is trusted by all users of the project.
        here = any(entry.file == project for entry in same)
        state = "known" if here else f"known ({same[0].file})"
        return _row(contact, key, state, "" if here or not contact.reads else "pin")
    changed = [entry for entry in known if entry.key not in contact.keys]
    if contact.wanted:
        return _row(contact, key, "matches the inventory", "pin", replace=bool(changed))
    if changed and contact.node in replace:
        return _row(contact, key, "replaced", "ask", replace=True)
    if changed:
        return _refused(contact, key, "CHANGED", _changed(contact, changed))
    return _row(contact, key, "new", "ask")


def _row(contact: Contact, key: HostKey, state: str, action: str, *, replace: bool = False) -> HostKeyDecision:
    if action and not contact.reads:
        why = f"ssh does not read {{project}} for this node. {WIRING}"
        return _refused(contact, key, f"{state}, and ssh does not read the project's known_hosts", why)
    return HostKeyDecision(contact.node, contact.address, state, action, key, contact.host, replace)


def _refused(contact: Contact, key: HostKey, state: str, why: str) -> HostKeyDecision:
    return HostKeyDecision(contact.node, contact.address, state, "refuse", key, contact.host, why=why)


def _is(key: HostKey, wanted: str) -> bool:
    given = key_of(wanted)
    return key == given if given else key.fingerprint == wanted.strip().rstrip("=")


def _not_the_inventorys(contact: Contact, key: HostKey) -> str:
    wanted = contact.wanted.strip()
    if not key_of(wanted) and not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}=?", wanted):
        return (
            f"cluster_host_key is {wanted!r}, neither a fingerprint (SHA256:...) nor a public key line."
            " Run on the node: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
        )
    given = key_of(wanted)
    shown = given.fingerprint if given else wanted
    return (
        f"the key is {key.fingerprint}, but cluster_host_key is {shown}: another machine has the node's address, or the"
        " node has new keys. Correct cluster_host_key only if the node's console shows the same with: ssh-keygen -lf"
        " /etc/ssh/ssh_host_ed25519_key.pub"
    )


def _changed(contact: Contact, changed: list[KnownHostsEntry]) -> str:
    old = changed[0]
    gone = (
        ""
        if any(key.type == old.key.type for key in contact.keys)
        else f", and the node no longer has a key of type {old.key.type}"
    )
    return (
        f"the known key is {old.key.fingerprint} ({old.file}){gone}. Possible causes: an attacker between you and the"
        " node, another machine with its address, or a reinstallation. Only after a reinstallation, run: "
        + playbook("playbooks/trust.yml", trust_replace=contact.node)
    )


def question(rows: Sequence[HostKeyDecision]) -> str:
    """Return the question to ask before new keys are pinned; "" if none is needed."""
    asked = [row for row in rows if row.action == "ask"]
    if not asked:
        return ""
    if len(asked) == 1:
        return f"Trust the key of {asked[0].node}? Compare it with what the node's console or your provider shows."
    return f"Trust these {len(asked)} new keys? Compare them with what the nodes' consoles or your provider show."


def table(rows: Sequence[HostKeyDecision]) -> list[str]:
    """Return the rows as aligned lines, with a header."""
    head = ("node", "address", "type", "fingerprint", "state")
    cells = [
        (
            row.node,
            row.address,
            row.key.type.removeprefix("ssh-").removeprefix("ecdsa-sha2-") if row.key else "-",
            row.key.fingerprint if row.key else "-",
            f"{row.state}: {row.why}" if row.why and row.action != "refuse" else row.state,
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (head, *cells)) for column in range(4)]
    return [
        "  ".join([*(text.ljust(width) for text, width in zip(line, widths, strict=False)), line[4]])
        for line in (head, *cells)
    ]


def sentences(rows: Sequence[HostKeyDecision], project: str) -> list[str]:
    """Return one sentence about each refused node."""
    return [
        # Not str.format, because a sentence may contain an inventory value with braces.
        f"{row.node}: host key rejected ({row.state}): {row.why.replace('{project}', project)}."
        for row in rows
        if row.action == "refuse"
    ]


def outcome(rows: Sequence[HostKeyDecision]) -> str:
    """Return the outcome of a run in which no node was refused, with the next command."""
    pinned = [row for row in rows if row.key]
    silent = [row.node for row in rows if row.state == "no answer"]
    what = f"the {'host key' if len(pinned) == 1 else 'host keys'} of {plural(len(pinned), 'node')}"
    what += " is pinned" if len(pinned) == 1 else " are pinned"
    if silent:
        return f"{what}, but {few(silent)} did not respond; run later: {playbook('playbooks/trust.yml')}"
    return f"{what}; next: {playbook('playbooks/inspect.yml')}"


def leftover_lines(left: dict[str, list[str]], project: str) -> list[str]:
    """Return the commands that remove the pinned keys of nodes that have left the inventory."""
    return [
        f"{node} is not in the inventory, but its key is still pinned. Remove it with: "
        + "; ".join(f"ssh-keygen -R {shlex.quote(host)} -f {shlex.quote(project)}" for host in dict.fromkeys(hosts))
        for node, hosts in left.items()
    ]
