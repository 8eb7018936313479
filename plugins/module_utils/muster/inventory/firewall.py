"""Whether what the firewall is asked for makes sense."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from .model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory

_KEYS = ("port", "proto", "from", "comment")
_PROTOS = ("tcp", "udp", "any")


def entries_can_be_rules(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        entries = node.variables.get("firewall_allow")
        for number, entry in enumerate(entries if isinstance(entries, list) else (), 1):
            for what, fix in _faults(entry):
                yield Problem(node.name, f"entry {number} of firewall_allow {what}", fix)


def ranges_are_ranges(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for name in ("firewall_ephemeral_range", "firewall_launch_ports"):
            if name not in node.variables:
                continue
            ports = port_range(node.variables[name])
            if ports is None or ports[0] < 1024:
                yield Problem(
                    node.name,
                    f"{name} is {str(node.variables[name])[:80]!r}, which is no range of ports from 1024 to 65535",
                    'Write the first and the last one, such as "32768-40959"',
                )


def port_range(value: Any) -> tuple[int, int] | None:
    """Return the first and the last port of a number or of text such as "9100-9110"; None for anything else."""
    match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", str(value)[:20].strip(), re.ASCII)
    if isinstance(value, (bool, float)) or match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return (first, last) if 1 <= first <= last <= 65535 else None


def _faults(entry: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(entry, dict):
        return  # told already: a value that cannot be read
    for key in entry:
        if key not in _KEYS:
            yield f"has {str(key)[:40]!r}, which means nothing there", f"An entry has {', '.join(_KEYS)}"
    if port_range(entry.get("port")) is None:
        yield (
            f"has the port {str(entry.get('port'))[:40]!r}" if "port" in entry else "has no port",
            'Write a number from 1 to 65535, or a range in quotes such as "9100-9110"',
        )
    if str(entry.get("proto", "tcp")).lower() not in _PROTOS:
        yield f"has the proto {str(entry['proto'])[:40]!r}", f"Write one of {', '.join(_PROTOS)}"
    for source in _list(entry.get("from")):
        if not _is_network(source):
            yield (
                f"lets in {str(source)[:60]!r}, which is neither an address nor a network",
                "Write such as 10.0.0.7 or 10.0.0.0/24: without the bits of one machine, and no name",
            )


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _is_network(value: Any) -> bool:
    # A number would be read as an address, 7 as 0.0.0.7.
    if not isinstance(value, str):
        return False
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return value == "any"
    return True
