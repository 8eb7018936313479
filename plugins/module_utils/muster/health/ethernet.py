"""The network interface that carries a launch's TCP traffic: link state, bond state and errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.finding import evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

# Prometheus' own alerts for nodes (node-mixin, NodeNetworkReceiveErrs and NodeNetworkTransmitErrs) begin at 1 %.
ERROR_PART = 0.01
ENOUGH_PACKETS = 10_000
# A wireless or saturated link has occasional errors: a single lost packet is chance, as in net_probe.
GREW = 3
PACKETS = ("rx_packets", "tx_packets")
WRONG = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors", "tx_carrier_errors")

LINK_DOWN = Check(
    "eth.link.down",
    seen="recording",
    reads="operstate and carrier of the training interface and of its underlying links",
    fires="fail: the interface is down or has no carrier",
    fix="Check the cable and the switch port, and bring the interface up with",
    command="sudo ip link set {name} up && ip -s link show {name}",
)
LINK_DUPLEX = Check(
    "eth.link.duplex",
    seen="recording",
    reads="duplex of the training interface's link",
    fires="warn: the link is half duplex (for example after failed negotiation), so collisions slow it down",
    fix="Enable autonegotiation on both ends. Show the result with",
    command="sudo ethtool {name}",
)
BOND_DEGRADED = Check(
    "eth.bond.degraded",
    seen="stand-in",
    reads="/proc/net/bonding of the training interface",
    fires="warn: a link of the bond is down, or its links have different speeds",
    fix="Check the cable and the switch port of the affected link. Show the bond with",
    command="cat /proc/net/bonding/{name}",
)
ERRORS = Check(
    "eth.errors",
    seen="recording",
    reads="error counters of the training interface at the start and at the end of the check",
    fires="warn: at least 1 % of all packets since boot had errors (Prometheus' node alerts), or at least 1 % of the "
    "packets during the check (three packets or more)",
    fix="Replace the cable or transceiver, and check the switch's counters. Show the node's counters with",
    command="sudo ethtool -S {name} | grep -iE 'err|drop|crc'",
)
CHECKS = (LINK_DOWN, LINK_DUPLEX, BOND_DEGRADED, ERRORS)
LOOKS = ("ethernet",)


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    # `later`: the counters of each link at the end of the check.
    look, later = looks["ethernet"], looks["later"]["ethernet"]
    return {
        "name": look["name"],
        "why": look["why"],
        "links": {name: _link(seen, later.get(name, {})) for name, seen in look["links"].items()},
    }


def _link(seen: Mapping[str, Any], later: Mapping[str, int]) -> dict[str, Any]:
    speed = int(seen["speed"]) if seen["speed"].lstrip("-").isdigit() else -1
    counters = seen["counters"]
    return {
        "mtu": int(seen["mtu"]) if seen["mtu"].isdigit() else None,
        # A driver reports an unknown speed as -1 or 2^32 - 1; drivers of virtual interfaces report arbitrary values.
        "speed": speed if 0 < speed < 2**31 and not seen["virtual"] else None,
        "duplex": seen["duplex"],
        "state": seen["operstate"],
        "carrier": {"1": True, "0": False}.get(seen["carrier"]),
        "carrier_changes": int(seen["carrier_changes"]) if seen["carrier_changes"].isdigit() else None,
        "virtual": seen["virtual"],
        "driver": seen["driver"],
        "slaves": _slaves(seen["bond"]),
        "counted": bool(counters and later),
        "packets": sum(counters.get(name, 0) for name in PACKETS),
        "meanwhile": sum(later.get(name, 0) - counters.get(name, 0) for name in PACKETS),
        "errors": {name: counters[name] for name in WRONG if counters.get(name)},
        "grown": {name: more for name in WRONG if (more := later.get(name, 0) - counters.get(name, 0)) > 0},
    }


def _slaves(bond: str) -> dict[str, dict[str, str]]:
    """Parse the links of a bond from /proc/net/bonding."""
    found: dict[str, dict[str, str]] = {}
    for part in bond.split("Slave Interface: ")[1:]:
        name = part.split("\n", 1)[0].strip()
        said = dict(re.findall(r"^(MII Status|Speed|Duplex): (.*)$", part, re.MULTILINE))
        found[name] = {"state": said.get("MII Status", ""), "speed": said.get("Speed", "")}
    return found


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["ethernet"]
    if not seen["links"]:
        why = seen["why"] or f"no interface has the address {request['address']}"
        yield from skip_all(CHECKS, why)
        return
    for name, link in seen["links"].items():
        yield from _up(node, name, link, seen["name"])
        yield from _errors(node, name, link)
    if not any(link["duplex"] in ("half", "full") for link in seen["links"].values()):
        yield LINK_DUPLEX.skip(f"{seen['name']} reports no duplex mode (usual for wireless and virtual interfaces)")
    if not all(link["counted"] for link in seen["links"].values()):
        yield ERRORS.skip("the error counters of at least one link cannot be read")
    bonds = {name: link["slaves"] for name, link in seen["links"].items() if link["slaves"]}
    if not bonds:
        yield BOND_DEGRADED.skip(f"{seen['name']} is not a bond")
    for name, slaves in bonds.items():
        yield from _bond(node, name, slaves)


def _up(node: str, name: str, link: Mapping[str, Any], training: str) -> Iterator[Said]:
    # A bond's link that is down is reported for the bond. Virtual interfaces are in state "unknown" while they work.
    if name == training and (link["state"] == "down" or link["carrier"] is False):
        yield LINK_DOWN.fail(
            node,
            f"the training interface {name} " + ("is down" if link["state"] == "down" else "has no carrier"),
            named={"name": name},
            observed=link["state"] or "no carrier",
            expected="up",
        )
    elif name == training and link["carrier"] is None:
        yield LINK_DOWN.skip(f"{name} does not report its carrier state")
    if link["duplex"] == "half":
        yield LINK_DUPLEX.warn(
            node,
            f"the link of {name} is half duplex",
            named={"name": name},
            observed="half",
            expected="full",
        )


def _errors(node: str, name: str, link: Mapping[str, Any]) -> Iterator[Said]:
    worst = max(link["errors"].values(), default=0)
    shown = ", ".join(f"{key} {value}" for key, value in link["errors"].items())
    grew = {key: more for key, more in link["grown"].items() if more >= max(GREW, ERROR_PART * link["meanwhile"])}
    if grew:
        grown = ", ".join(f"{key} by {value}" for key, value in grew.items())
        summary = f"the error counters of {name} increased during the check (1 s): {grown}"
    elif link["packets"] >= ENOUGH_PACKETS and worst >= ERROR_PART * link["packets"]:
        summary = f"{name} has had errors on {worst / link['packets']:.1%} of its packets since boot: {shown}"
    else:
        return
    yield ERRORS.warn(
        node,
        summary,
        named={"name": name},
        observed=shown,
        expected="none",
        evidence=evidence(f"/sys/class/net/{name}/statistics", shown),
    )


def _bond(node: str, name: str, slaves: Mapping[str, Mapping[str, str]]) -> Iterator[Said]:
    down = [each for each, said in slaves.items() if said["state"] != "up"]
    speeds = {said["speed"] for said in slaves.values() if said["state"] == "up"}
    if down:
        summary = f"the bond {name} has a link that is down: {', '.join(down)}"
    elif len(speeds) > 1:
        listed = ", ".join(f"{each} {said['speed']}" for each, said in slaves.items())
        summary = f"the links of the bond {name} have different speeds: {listed}"
    else:
        return
    yield BOND_DEGRADED.warn(
        node,
        summary,
        named={"name": name},
        observed=", ".join(down) or ", ".join(sorted(speeds)),
        expected=f"{len(slaves)} links up, with the same speed",
    )
