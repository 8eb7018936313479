"""The interface that carries the TCP traffic of a launch: link, counters and underlying interfaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools.run import names, read, run

if TYPE_CHECKING:
    from collections.abc import Mapping

NET = "/sys/class/net"
BONDING = "/proc/net/bonding"


def look(interface: str, address: str) -> dict[str, Any]:
    answer = run("ip", "-json", "addr")
    name = interface or carrier(answer.text, address)
    if not name or not Path(NET, name).exists():
        return {"name": name, "why": answer.why, "links": {}}
    return {"name": name, "why": answer.why, "links": {each: link(each) for each in below(name)}}


def carrier(text: str, address: str) -> str:
    """Return the interface that has the address, or "" if no interface has it."""
    try:
        links = json.loads(text or "[]")
    except ValueError:
        return ""
    for each in links:
        if any(entry.get("local") == address for entry in each.get("addr_info", ())):
            return str(each["ifname"])
    return ""


def below(name: str) -> list[str]:
    """Return the interface and the interfaces below it: the parent of a VLAN, the members of a bond."""
    found = [name]
    for each in found:
        lower = [entry.removeprefix("lower_") for entry in names(f"{NET}/{each}") if entry.startswith("lower_")]
        found += [one for one in lower if one not in found]
    return found


def link(name: str) -> dict[str, Any]:
    folder = f"{NET}/{name}"
    said = {
        key: read(f"{folder}/{key}").text.strip()
        for key in ("mtu", "speed", "duplex", "operstate", "carrier", "carrier_changes", "type")
    }
    try:
        driver = Path(f"{folder}/device/driver").readlink().name
    except OSError:
        driver = ""
    return {
        **said,
        "virtual": not Path(f"{folder}/device").exists(),
        "driver": driver,
        "bond": read(f"{BONDING}/{name}").text,
        "counters": counters(name),
    }


def counters(name: str) -> dict[str, int]:
    """Return the counters, which start when the interface is created. Two readings show which counters increase."""
    folder = f"{NET}/{name}/statistics"
    seen = {each: read(f"{folder}/{each}").text.strip() for each in names(folder)}
    return {each: int(value) for each, value in seen.items() if value.isdigit()}


def again(seen: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Read the counters a second time. Return them by interface."""
    return {name: counters(name) for name in seen["links"]}
