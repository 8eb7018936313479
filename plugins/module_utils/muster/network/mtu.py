"""Plan the MTU of the training interface, and evaluate path tests.

The MTU is set immediately with `ip`, which does not interrupt connections. For the next boot, it is written to the
configuration of the tool that manages the interface. No network service is restarted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The minimum of IPv6 (RFC 8200), and the maximum of Linux interfaces: IP over InfiniBand, connected mode.
LEAST, MOST = 1280, 65520
# Minimum time for changing, testing and confirming all nodes, including the Guard's margin.
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
# Sections of netplan in which the key may be the name of the interface.
_SECTIONS = ("ethernets", "bonds", "vlans", "bridges")
# Device type in NetworkManager -> the connection's setting for the MTU.
_SETTINGS = {
    **dict.fromkeys(("ethernet", "bond", "vlan", "bridge"), "802-3-ethernet.mtu"),
    "infiniband": "infiniband.mtu",
}


@dataclass(frozen=True)
class MtuState:
    """The state of the interface. manager: the tool that configures the interface; "" if unknown. place: the
    interface's name in that tool.

    kept: the MTU after the next boot; 0 if not set. file: the configuration file to write. section: the netplan
    section, or the setting of the NetworkManager connection.
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
    """steps: the steps in order. files, undo: files that the guard restores, and commands that the guard runs after
    restoring them.
    """

    steps: tuple[dict[str, Any], ...] = ()
    files: tuple[str, ...] = ()
    undo: tuple[tuple[str, ...], ...] = ()
    differences: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class Path:
    """The path from one node to another. small, full: whether a packet of this size was answered."""

    node: str
    peer: str
    address: str
    small: bool
    full: bool


@dataclass(frozen=True)
class MtuResult:
    """lost: for each affected node, a sentence about lost large packets. silent: for each node, the nodes that do not
    answer at all.
    """

    lost: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, Sequence[str]] = field(default_factory=dict)


def request_problem(mtu: int) -> tuple[str, str] | None:
    if mtu == 0 or LEAST <= mtu <= MOST:
        return None
    fix = f"Set a number from {LEAST} to {MOST}, such as 9000, or 0 to keep the current MTU"
    return f"mtu_training is {mtu}, which is out of range", fix


def read(look: Mapping[str, Any]) -> MtuState | str:
    """Parse the output of muster_node/programs/mtu.py, or return why this is not possible."""
    interface = look["interface"]
    if interface and not _NAME.fullmatch(interface):
        return f"the name of the training interface, {interface!r}, is not valid in configuration files"
    try:
        link = next(each for each in json.loads(look["link"] or "[]") if each.get("ifname") == interface)
    except (ValueError, StopIteration):
        return f"the training interface {interface or '(none has cluster_address)'} cannot be read"
    seen = {"interface": interface, "mtu": int(link["mtu"]), "most": int(link.get("max_mtu", 0))}
    for manager in (_network_manager, _netplan, _networkd, _ifupdown):
        found = manager(look, interface)
        if found:
            return MtuState(**seen, **found)
    return MtuState(**seen)


def _network_manager(look: Mapping[str, Any], _interface: str) -> dict[str, Any] | None:
    """Parse `nmcli --get-values` output: UUID, type and state of the device, one per line."""
    words = look["nmcli"].split("\n")
    if len(words) < 3 or not words[0] or not words[2].startswith("100") or words[1] not in _SETTINGS:
        return None
    uuid, kind = words[0], words[1]
    files = dict(line.split(":", 1) for line in look["nmcli_files"].splitlines() if ":" in line)
    file = files.get(uuid, "").replace("\\:", ":")
    if not file.startswith("/etc/"):
        # Since Ubuntu 23.10, NetworkManager stores connections in netplan's folder, and generates the files in /run.
        file = f"/etc/netplan/90-NM-{uuid}.yaml"
    kept = look["nmcli_mtu"].strip()
    setting = _SETTINGS[kind]
    of = {"manager": "NetworkManager", "place": uuid, "section": setting, "file": file}
    return {**of, "kept": int(kept) if kept.isdigit() else 0}


def _netplan(look: Mapping[str, Any], interface: str) -> dict[str, Any] | None:
    """Parse `netplan get` output, in which each YAML level is indented by two spaces."""
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
    """Parse `networkctl status` output, which names the configuration file; "n/a" for interfaces that networkd does not
    manage.
    """
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
    """Return the plan.

    It contains a refusal if the MTU cannot be made persistent or the adapter does not support it.
    """
    name = seen.interface
    differences = []
    if seen.mtu != mtu:
        differences.append(f"the MTU of {name} is {seen.mtu}, but mtu_training is {mtu}")
    if seen.manager and seen.kept != mtu:
        differences.append(f"{seen.manager} would not set the MTU of {name} to {mtu} at the next boot")
    if not seen.manager and seen.mtu != mtu:
        why = f"none of {MANAGERS} manages {name}"
        fix = f"Set the MTU {mtu} in the tool that manages {name}, and set mtu_mode to verify"
        return MtuPlan(refusal=f"{why}. {fix}", differences=tuple(differences))
    if seen.most and mtu > seen.most:
        return MtuPlan(
            refusal=f"the maximum MTU of {name} is {seen.most}, but mtu_training is {mtu}. Lower mtu_training",
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
    """Return the steps that make the MTU persistent, and the commands to run after the guard has restored the file."""
    values = {"interface": seen.interface, "mtu": mtu, "section": seen.section, "place": seen.place}
    if seen.manager == "NetworkManager":
        modify = ("nmcli", "connection", "modify", seen.place, seen.section)
        return [{"run": [*modify, str(mtu)]}], [(*modify, str(seen.kept))]
    if seen.manager == "netplan":
        # `netplan generate` validates the file; its output is used only at the next boot.
        generate = ("netplan", "generate")
        # Netplan warns about files readable by others, because they may contain secrets.
        write = {"write": seen.file, "text": _NETPLAN_TEXT.format(**values), "mode": 0o600}
        return [write, {"run": list(generate)}], [generate]
    if seen.manager == "systemd-networkd":
        return [{"write": seen.file, "text": _NETWORKD_TEXT.format(**values), "mode": 0o644}], []
    return [{"write": seen.file, "text": _IF_UP_TEXT.format(**values), "mode": 0o755}], []


def peers_of(node: str, nodes: Sequence[str], most: int = 16) -> list[str]:
    """Return the nodes that a node tests.

    They are the next nodes in a ring, so that the link of every node is tested.
    """
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
        node: f"packets of {mtu} bytes do not reach {few(peers)}, but small packets do" for node, peers in lost.items()
    }
    return MtuResult(sentences, silent)


def ended(node: str, judged: MtuResult, *, interface: str, changed: bool) -> Iterator[str]:
    """Yield the reason for reverting the change on a node; nothing if the change is kept."""
    if not judged.lost:
        return
    fix = "Raise the MTU of the switch ports and interfaces in between, or lower mtu_training"
    if node in judged.lost:
        yield f"{judged.lost[node]}. {fix}"
    elif changed:
        first = next(iter(judged.lost))
        yield f"the MTU of {interface} is reverted, because {first} failed its test: {judged.lost[first]}. {fix}"
