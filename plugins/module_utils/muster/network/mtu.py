"""The MTU of the training interface: who keeps it over a reboot, what has to be done, and what the paths carry. Pure.

It is set at once with ip, which interrupts nothing, and written where whatever sets the interface up finds it at the
next start. Nothing that manages the network is restarted for it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The least that IPv6 lives with (RFC 8200), and the most of any interface of Linux: IP over InfiniBand, connected.
LEAST, MOST = 1280, 65520
# The least in which all nodes are set, tried and confirmed, with the time that Guard keeps back for itself.
LEAST_SECONDS = 30
NETPLAN = "/etc/netplan/90-muster-mtu.yaml"
IF_UP = "/etc/network/if-up.d/muster-mtu"
MANAGERS = "netplan, systemd-networkd, NetworkManager and ifupdown"
_IF_UP_TEXT = """\
#!/bin/sh
# Written by Muster: the MTU of the training interface (mtu_training).
if [ "$IFACE" = "{interface}" ]; then
    ip link set dev "{interface}" mtu {mtu}
fi
"""
_NETPLAN_TEXT = """\
# Written by Muster: the MTU of the training interface (mtu_training).
network:
  version: 2
  {section}:
    {place}:
      mtu: {mtu}
"""
_NETWORKD_TEXT = """\
# Written by Muster: the MTU of the training interface (mtu_training).
[Link]
MTUBytes={mtu}
"""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,15}")
# What netplan may call an interface of these kinds by its own name.
_SECTIONS = ("ethernets", "bonds", "vlans", "bridges")
# By the type that NetworkManager says of a device: where its connection has the MTU.
_SETTINGS = {
    **dict.fromkeys(("ethernet", "bond", "vlan", "bridge"), "802-3-ethernet.mtu"),
    "infiniband": "infiniband.mtu",
}


@dataclass(frozen=True)
class MtuState:
    """The interface. manager: who sets it up; "" where that is not known. place: under which name that one has it.

    kept: the MTU that it has after the next start; 0 where nobody has set one. file: what is written for it. section:
    netplan's for it, or the setting of a connection of NetworkManager's.
    """

    interface: str
    mtu: int
    most: int = 0
    manager: str = ""
    place: str = ""
    section: str = ""
    file: str = ""
    kept: int = 0


@dataclass(frozen=True)
class MtuPlan:
    """steps: what is done, in this order. files, undo: what the guard puts back, and then runs."""

    steps: tuple[dict[str, Any], ...] = ()
    files: tuple[str, ...] = ()
    undo: tuple[tuple[str, ...], ...] = ()
    differences: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class Path:
    """From one node to another. small, full: whether a packet of either size came back."""

    node: str
    peer: str
    address: str
    small: bool
    full: bool


@dataclass(frozen=True)
class MtuResult:
    """lost: by node, what does not go through. silent: by node, the peers that do not answer at all."""

    lost: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, Sequence[str]] = field(default_factory=dict)


def request_problem(mtu: int) -> tuple[str, str] | None:
    if mtu == 0 or LEAST <= mtu <= MOST:
        return None
    return f"mtu_training is {mtu}", f"Write a number from {LEAST} to {MOST}, such as 9000, or 0 to leave it as it is"


def read(look: Mapping[str, Any]) -> MtuState | str:
    """Make facts of what the node said (muster_node/programs/mtu.py), or say why none can be made."""
    interface = look["interface"]
    if interface and not _NAME.fullmatch(interface):
        return f"its training interface {interface!r} has a name that cannot be written into a file of settings"
    try:
        link = next(each for each in json.loads(look["link"] or "[]") if each.get("ifname") == interface)
    except (ValueError, StopIteration):
        return f"its training interface {interface or '(none has cluster_address)'} cannot be looked at"
    seen = {"interface": interface, "mtu": int(link["mtu"]), "most": int(link.get("max_mtu", 0))}
    for manager in (_network_manager, _netplan, _networkd, _ifupdown):
        found = manager(look, interface)
        if found:
            return MtuState(**seen, **found)
    return MtuState(**seen)


def _network_manager(look: Mapping[str, Any], _interface: str) -> dict[str, Any] | None:
    """`nmcli --get-values` prints a line for each of uuid, type and state of the device."""
    words = look["nmcli"].split("\n")
    if len(words) < 3 or not words[0] or not words[2].startswith("100") or words[1] not in _SETTINGS:
        return None
    uuid, kind = words[0], words[1]
    files = dict(line.split(":", 1) for line in look["nmcli_files"].splitlines() if ":" in line)
    file = files.get(uuid, "").replace("\\:", ":")
    if not file.startswith("/etc/"):
        # Since 23.10 Ubuntu's keeps connections in netplan's folder, and what it reads in /run.
        file = f"/etc/netplan/90-NM-{uuid}.yaml"
    kept = look["nmcli_mtu"].strip()
    setting = _SETTINGS[kind]
    of = {"manager": "NetworkManager", "place": uuid, "section": setting, "file": file}
    return {**of, "kept": int(kept) if kept.isdigit() else 0}


def _netplan(look: Mapping[str, Any], interface: str) -> dict[str, Any] | None:
    """`netplan get` prints its YAML in one way: two spaces for each level."""
    section = place = ""
    found: tuple[str, str] | None = None
    kept: dict[str, int] = {}
    for line in look["netplan"].splitlines():
        depth, text = len(line) - len(line.lstrip()), line.strip()
        key, _, value = text.partition(":")
        if depth == 2:
            section = key
        elif depth == 4 and text.endswith(":"):
            place = key.strip("\"'")
            if place == interface and section in _SECTIONS:
                found = (section, place)
        elif depth == 6 and section in _SECTIONS:
            plain = value.strip().strip("\"'")
            if key == "set-name" and plain == interface:
                found = (section, place)
            if key == "mtu" and plain.isdigit():
                kept[place] = int(plain)
    if found is None:
        return None
    return {
        "manager": "netplan",
        "section": found[0],
        "place": found[1],
        "file": NETPLAN,
        "kept": kept.get(found[1], 0),
    }


def _networkd(look: Mapping[str, Any], interface: str) -> dict[str, Any] | None:
    """`networkctl status` names the file that sets the interface up; it is n/a for one that is left alone."""
    named = re.search(r"^\s*Network File: (/\S+\.network)$", look["networkctl"], re.MULTILINE)
    if named is None:
        return None
    file = f"/etc/systemd/network/{named[1].rpartition('/')[2]}.d/90-muster-mtu.conf"
    kept = re.search(r"^MTUBytes=(\d+)$", look["written"].get("networkd", ""), re.MULTILINE)
    return {"manager": "systemd-networkd", "place": interface, "file": file, "kept": int(kept[1]) if kept else 0}


def _ifupdown(look: Mapping[str, Any], interface: str) -> dict[str, Any] | None:
    if not re.search(rf"^\s*iface\s+{re.escape(interface)}\s", look["interfaces"], re.MULTILINE):
        return None
    kept = re.search(r" mtu (\d+)$", look["written"].get("ifupdown", ""), re.MULTILINE)
    of_us = f'"{interface}"' in look["written"].get("ifupdown", "")
    return {"manager": "ifupdown", "place": interface, "file": IF_UP, "kept": int(kept[1]) if kept and of_us else 0}


def plan(mtu: int, seen: MtuState) -> MtuPlan:
    """Return what has to be done; a refusal where it cannot be kept, or the adapter cannot do it."""
    name = seen.interface
    differences = []
    if seen.mtu != mtu:
        differences.append(f"the MTU of {name} is {seen.mtu}, and mtu_training is {mtu}")
    if seen.manager and seen.kept != mtu:
        differences.append(f"after the next start {seen.manager} would give {name} another MTU than {mtu}")
    if not seen.manager and seen.mtu != mtu:
        why = f"nothing is known here of what sets up {name}: none of {MANAGERS} has it"
        fix = f"Have whatever does it set the MTU {mtu}, and set mtu_mode to verify"
        return MtuPlan(refusal=f"{why}. {fix}", differences=tuple(differences))
    if seen.most and mtu > seen.most:
        return MtuPlan(
            refusal=f"{name} takes no MTU above {seen.most}, and mtu_training is {mtu}. Lower mtu_training",
            differences=tuple(differences),
        )
    steps: list[dict[str, Any]] = []
    undo: list[tuple[str, ...]] = []
    if seen.manager and seen.kept != mtu:
        kept_steps, kept_undo = _kept(mtu, seen)
        steps += kept_steps
        undo += kept_undo
    if seen.mtu != mtu:
        steps.append({"run": ["ip", "link", "set", "dev", name, "mtu", str(mtu)]})
        undo.append(("ip", "link", "set", "dev", name, "mtu", str(seen.mtu)))
    return MtuPlan(tuple(steps), (seen.file,) if seen.file else (), tuple(undo), tuple(differences))


def _kept(mtu: int, seen: MtuState) -> tuple[list[dict[str, Any]], list[tuple[str, ...]]]:
    """Return what keeps it for the next start, and what has to be run once the file is as it was."""
    values = {"interface": seen.interface, "mtu": mtu, "section": seen.section, "place": seen.place}
    if seen.manager == "NetworkManager":
        modify = ("nmcli", "connection", "modify", seen.place, seen.section)
        return [{"run": [*modify, str(mtu)]}], [(*modify, str(seen.kept))]
    if seen.manager == "netplan":
        # It judges the file, and nothing reads what it makes before the next start.
        generate = ("netplan", "generate")
        # Netplan warns of files that others may read: they can hold secrets.
        write = {"write": seen.file, "text": _NETPLAN_TEXT.format(**values), "mode": 0o600}
        return [write, {"run": list(generate)}], [generate]
    if seen.manager == "systemd-networkd":
        return [{"write": seen.file, "text": _NETWORKD_TEXT.format(**values), "mode": 0o644}], []
    return [{"write": seen.file, "text": _IF_UP_TEXT.format(**values), "mode": 0o755}], []


def peers_of(node: str, nodes: Sequence[str], most: int = 16) -> list[str]:
    """Return the peers to which a node's path is tried: the next ones in a ring, which leaves no link out."""
    at = nodes.index(node)
    return [*nodes[at + 1 :], *nodes[:at]][:most]


def judge(paths: Sequence[Path], mtu: int) -> MtuResult:
    lost: dict[str, list[str]] = {}
    silent: dict[str, list[str]] = {}
    for path in paths:
        if path.small and not path.full:
            lost.setdefault(path.node, []).append(f"{path.peer} ({path.address})")
        elif not path.small:
            silent.setdefault(path.node, []).append(path.peer)
    sentences = {
        node: f"a packet of {mtu} bytes does not reach {few(peers)}, and a small one does"
        for node, peers in lost.items()
    }
    return MtuResult(sentences, silent)


def ended(node: str, judged: MtuResult, *, interface: str, changed: bool) -> Iterator[str]:
    """Say why a node's change does not stay; nothing where it does."""
    if not judged.lost:
        return
    fix = "Raise the MTU of the switch ports and of the interfaces between them, or lower mtu_training"
    if node in judged.lost:
        yield f"{judged.lost[node]}. {fix}"
    elif changed:
        first = next(iter(judged.lost))
        yield f"{interface} cannot have it alone: from {first} {judged.lost[first]}. {fix}"
